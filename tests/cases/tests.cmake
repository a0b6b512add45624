# Cases from the field, by their sections; README.md here says which test handles which row.
file(GLOB kvg_case_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_cases_*.c)
foreach(source IN LISTS kvg_case_tests)
  get_filename_component(name ${source} NAME_WE)
  kvg_add_program(${name} ${source})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS unit)
endforeach()

add_test(NAME visible_devices COMMAND ${CMAKE_CURRENT_LIST_DIR}/visible_devices.sh $<TARGET_FILE:kvgrid_command> ${PROJECT_SOURCE_DIR})
set_tests_properties(visible_devices PROPERTIES TIMEOUT 60 LABELS unit)

# Every test that the table names is there and run, and every test here is named.
add_test(NAME cases_readme COMMAND ${CMAKE_CURRENT_LIST_DIR}/check_readme.sh ${CMAKE_CURRENT_SOURCE_DIR})
set_tests_properties(cases_readme PROPERTIES TIMEOUT 60 LABELS unit)
