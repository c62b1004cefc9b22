foreach(module array histogram parse rng strbuf hash wire pairmap)
  unit_test(${module} USES common)
endforeach()
unit_test(fileio USES common pthread)
