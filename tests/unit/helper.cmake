# The helper's sources themselves, not the library. Objects, not an archive: the calls that it stands before are to be its own whatever
# else comes first in the link.
enable_language(ASM)
set(helper_folder ${CMAKE_SOURCE_DIR}/helper)
add_library(helper_checked OBJECT
  ${helper_folder}/disposition.c ${helper_folder}/disposition_calls.c ${helper_folder}/disposition_${CMAKE_SYSTEM_PROCESSOR}.S
  ${helper_folder}/safeload.c ${helper_folder}/safeload_${CMAKE_SYSTEM_PROCESSOR}.S)
target_link_libraries(helper_checked PUBLIC helper_layout PRIVATE sampler_flags)

foreach(module safeload disposition)
  unit_test(${module} USES helper_checked pthread SOURCES registers_${CMAKE_SYSTEM_PROCESSOR}.S)
endforeach()
