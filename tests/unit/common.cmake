foreach(module array histogram parse rng strbuf hash)
  unit_test(${module} USES common)
endforeach()
unit_test(fileio USES common pthread)
