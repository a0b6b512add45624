# The simulator: build/tests/simulate --seed N --steps N
file(GLOB simulate_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
add_executable(simulate ${simulate_sources})
target_link_libraries(simulate PRIVATE kvg_options kvgrid_static PkgConfig::JANSSON PkgConfig::XXHASH)
