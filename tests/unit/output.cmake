unit_test(clean USES output profile common)
unit_test(collapsed USES output profile common)
unit_test(sink USES output common pthread)
unit_test(output USES output profile)
