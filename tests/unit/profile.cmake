unit_test(strings USES common)
unit_test(profile USES profile common)
