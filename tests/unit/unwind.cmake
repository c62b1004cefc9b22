unit_test(codemap USES unwind)
unit_test(snapshot USES unwind)
unit_test(callsite USES unwind)
unit_test(framepointer USES unwind)
unit_test(cfitable USES unwind SOURCES cfi_made.c)

# Unwind information in .debug_frame alone. The version of DWARF decides about the CIE's when the compiler writes the section; gcc knows 1 and 3.
set(fixtures)
set(no_tables -g0 -fno-asynchronous-unwind-tables -fno-unwind-tables)
set(debug_tables ${no_tables} -g -fno-dwarf2-cfi-asm)
set(cie_v4 -gdwarf-5)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
  set(cie_v4 -fdwarf2-cfi-asm -Wa,--gdwarf-cie-version=4)
endif()
set(in_sections -ffunction-sections)
set(discard -Wl,--gc-sections)
fixture(debugframe_none plain.c COMPILE ${no_tables})
fixture(debugframe_v1 plain.c COMPILE ${debug_tables} -gdwarf-2)
fixture(debugframe_v3 plain.c COMPILE ${debug_tables} -gdwarf-3)
fixture(debugframe_v4 plain.c COMPILE ${debug_tables} ${cie_v4})
fixture(debugframe_wide plain.c COMPILE ${debug_tables} -gdwarf-5 -gdwarf64)
fixture(debugframe_no_header plain.c COMPILE ${debug_tables} -fno-pie LINK -no-pie -Wl,--no-eh-frame-hdr)
fixture(debugframe_packed plain.c COMPILE ${debug_tables} -gz=zlib LINK -gz=zlib)
fixture(debugframe_gnu plain.c COMPILE ${debug_tables})
fixture(debugframe_discarded discarded.c COMPILE ${debug_tables} ${in_sections} LINK ${discard})
fixture(debugframe_discarded_wide discarded.c COMPILE ${debug_tables} -gdwarf-5 -gdwarf64 ${in_sections}
        LINK ${discard} -Wl,-z,noseparate-code)
add_custom_command(TARGET fixture_debugframe_gnu POST_BUILD
                   COMMAND ${CMAKE_OBJCOPY} --compress-debug-sections=zlib-gnu $<TARGET_FILE:fixture_debugframe_gnu>)
unit_test(debugframe USES unwind z SOURCES cfi_made.c DEPENDS ${fixtures} DEFINES FIXTURES="${fixture_dir}")
unit_test(unwind USES unwind SOURCES self_target.c unwind_chain_fp.c unwind_chain_nofp.c)
# The walks by frame pointers start in the test itself.
set_source_files_properties(test_unwind.c self_target.c unwind_chain_fp.c
                            PROPERTIES COMPILE_OPTIONS "-fno-omit-frame-pointer;-fno-optimize-sibling-calls")
# No sanitizer here: it would re-arrange the frames.
set_source_files_properties(unwind_chain_nofp.c PROPERTIES COMPILE_OPTIONS "-fomit-frame-pointer;-fno-sanitize=all")
unit_test(unwind_steps USES unwind SOURCES self_target.c unwind_steps_bare.c)
set_source_files_properties(
  unwind_steps_bare.c
  PROPERTIES COMPILE_OPTIONS
             "-g0;-fno-omit-frame-pointer;-fno-asynchronous-unwind-tables;-fno-unwind-tables;-fno-sanitize=all")
# The linker's default may be to bind all symbols at the start.
target_link_options(test_unwind_steps PRIVATE -Wl,-z,lazy)
unit_test(expression USES unwind)
unit_test(rules USES unwind SOURCES rulepair.c DEFINES $<$<BOOL:${SAMPLER_SANITIZE}>:SANITIZED>)
unit_test(rulecache USES unwind)
unit_test(rulecompiler USES unwind SOURCES rulepair.c frameimage.c)
unit_test(inspect USES unwind)
unit_test(instruction_x86_64 USES unwind ${CMAKE_DL_LIBS})
unit_test(prologue USES unwind SOURCES self_target.c)
unit_test(inference USES unwind SOURCES frameimage.c)
unit_test(gotslot USES unwind SOURCES self_target.c)
unit_test(origin USES unwind SOURCES frameimage.c)
unit_test(walk USES unwind SOURCES frameimage.c)
unit_test(origin_near USES unwind)
unit_test(view USES unwind)
