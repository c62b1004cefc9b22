unit_test(codemap USES unwind)
unit_test(snapshot USES unwind)
unit_test(callsite USES unwind)
unit_test(framepointer USES unwind)
unit_test(cfitable USES unwind)
unit_test(unwind USES unwind SOURCES self_target.c unwind_chain_fp.c unwind_chain_nofp.c)
# The walks by frame pointers start in the test itself.
set_source_files_properties(test_unwind.c self_target.c unwind_chain_fp.c
                            PROPERTIES COMPILE_OPTIONS "-fno-omit-frame-pointer;-fno-optimize-sibling-calls")
# No sanitizer here: it would re-arrange the frames.
set_source_files_properties(unwind_chain_nofp.c PROPERTIES COMPILE_OPTIONS "-fomit-frame-pointer;-fno-sanitize=all")
unit_test(unwind_steps USES unwind SOURCES self_target.c)
# The linker's default may be to bind all symbols at the start.
target_link_options(test_unwind_steps PRIVATE -Wl,-z,lazy)
unit_test(expression USES unwind)
unit_test(rules USES unwind SOURCES rulepair.c DEFINES $<$<BOOL:${SAMPLER_SANITIZE}>:SANITIZED>)
unit_test(rulecache USES unwind)
unit_test(rulecompiler USES unwind SOURCES rulepair.c frameimage.c)
unit_test(inspect USES unwind)
