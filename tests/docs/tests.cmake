# The pages are tested: links and names, programs, what commands print, and the table of names.
add_test(NAME docs_pages COMMAND ${CMAKE_CURRENT_LIST_DIR}/pages.sh)
set_tests_properties(docs_pages PROPERTIES TIMEOUT 60 LABELS docs)
add_test(NAME docs_names COMMAND ${CMAKE_CURRENT_LIST_DIR}/names.sh)
set_tests_properties(docs_names PROPERTIES TIMEOUT 60 LABELS docs)

set(kvg_docs_flags "")
if(KVG_SANITIZE)
  set(kvg_docs_flags "-fsanitize=${KVG_SANITIZE}")
endif()
add_test(NAME docs_readme COMMAND ${CMAKE_CURRENT_LIST_DIR}/readme.sh ${PROJECT_BINARY_DIR})
set_tests_properties(docs_readme PROPERTIES TIMEOUT 300 LABELS docs
  ENVIRONMENT "CC=${CMAKE_C_COMPILER};CXX=${CMAKE_CXX_COMPILER};FLAGS=${kvg_docs_flags};NVCC=${CMAKE_CUDA_COMPILER}")
