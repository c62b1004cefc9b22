unit_test(strings USES profile)
unit_test(profile USES profile common)
