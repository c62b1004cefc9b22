# Looks at threads by BPF (sampler/bpflook.h, sampler/bpfregs.h): only where clang compiles for BPF and libbpf is there.
set(SAMPLER_BPF AUTO CACHE STRING "Look at threads by BPF: AUTO (where it can be built), ON or OFF")
set(SAMPLER_BPF_FOUND OFF)
if(NOT SAMPLER_BPF STREQUAL "OFF")
  find_program(SAMPLER_BPF_CLANG NAMES clang clang-14)
  find_path(SAMPLER_BPF_INCLUDE bpf/libbpf.h)
  find_library(SAMPLER_BPF_LIBRARY bpf)
  if(SAMPLER_BPF_CLANG AND SAMPLER_BPF_INCLUDE AND SAMPLER_BPF_LIBRARY)
    execute_process(COMMAND ${SAMPLER_BPF_CLANG} --print-targets OUTPUT_VARIABLE targets ERROR_QUIET)
    if(targets MATCHES "bpfel")
      set(SAMPLER_BPF_FOUND ON)
    endif()
  endif()
  if(SAMPLER_BPF STREQUAL "ON" AND NOT SAMPLER_BPF_FOUND)
    message(FATAL_ERROR "SAMPLER_BPF=ON needs clang with the BPF target and libbpf-dev")
  endif()
endif()

# sampler_bpf_object(NAME SOURCE): compiles SOURCE to NAME in the build tree.
function(sampler_bpf_object name source)
  add_custom_command(
    OUTPUT ${name}
    COMMAND ${SAMPLER_BPF_CLANG} -target bpf -O2 -g -Wall -I/usr/include/${CMAKE_LIBRARY_ARCHITECTURE} -I${SAMPLER_BPF_INCLUDE} -c ${source} -o ${name}
    DEPENDS ${source} ${CMAKE_CURRENT_SOURCE_DIR}/bpf/record.h ${CMAKE_CURRENT_SOURCE_DIR}/bpf/look.h
    COMMENT "Compiling ${source} for BPF" VERBATIM)
endfunction()
