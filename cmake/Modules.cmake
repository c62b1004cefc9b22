# sampler_module(NAME SOURCES a.c b.c USES other... LIBRARIES system...)
#
# A folder is a static library. Its headers are seen as <folder>/<file>.h through a directory in the build tree that holds one link, to
# that folder alone; so an include of a folder that is not in USES does not compile. NAME is the folder's but where a program has that name.
function(sampler_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  add_library(${name} STATIC ${arg_SOURCES})
  set(view ${CMAKE_BINARY_DIR}/include-${folder})
  file(MAKE_DIRECTORY ${view})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${view}/${folder} SYMBOLIC)
  target_include_directories(${name} PUBLIC ${view})
  target_link_libraries(${name} PUBLIC ${arg_USES} PRIVATE sampler_flags ${arg_LIBRARIES})
endfunction()
