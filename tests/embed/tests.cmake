# The embedding (launch/embed): its pure parts with their sources compiled in, and the program itself, whose workers take turns on few cores.

set(kvg_embed_dir ${PROJECT_SOURCE_DIR}/launch/embed)

function(kvg_add_embed_test name)
  list(TRANSFORM ARGN PREPEND ${kvg_embed_dir}/ OUTPUT_VARIABLE sources)
  kvg_add_program(${name} ${CMAKE_CURRENT_SOURCE_DIR}/embed/${name}.c ${sources})
  target_link_libraries(${name} PRIVATE m)
  add_dependencies(${name} kvgrid_embed)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS embed)
endfunction()

kvg_add_embed_test(test_embed_tokens transformer.c)

kvg_add_embed_test(test_embed_faults)
kvg_add_embed_test(test_embed_schedule schedule.c)
set_tests_properties(test_embed_tokens test_embed_faults PROPERTIES RUN_SERIAL ON)

set(kvg_embed_flags "")
if(KVG_SANITIZE)
  set(kvg_embed_flags "-fsanitize=${KVG_SANITIZE}")
endif()
add_test(NAME embed_alone COMMAND ${CMAKE_CURRENT_LIST_DIR}/alone.sh ${PROJECT_BINARY_DIR})
set_tests_properties(embed_alone PROPERTIES TIMEOUT 120 LABELS embed ENVIRONMENT "CC=${CMAKE_C_COMPILER};FLAGS=${kvg_embed_flags}")
