# cmake --install build --prefix X: headers flat in include/kvgrid, both libraries, the command and its manual pages, pkg-config files and a CMake package.
#   find_package(kvgrid)                  kvgrid::kvgrid, kvgrid::kvgrid_static
#   find_package(kvgrid COMPONENTS mpi)   kvgrid::kvgrid_mpi, kvgrid::kvgrid_mpi_static as well
#   find_package(kvgrid COMPONENTS cuda)  kvgrid::kvgrid_cuda as well (static, over kvgrid_static)
#   find_package(kvgrid COMPONENTS nccl)  kvgrid::kvgrid_nccl as well (static, over kvgrid_cuda)

include(CMakePackageConfigHelpers)
set(kvg_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvgrid)
set(kvg_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(kvg_installed_headers ${kvg_public_headers})
if(NOT TARGET kvgrid_mpi)
  list(FILTER kvg_installed_headers EXCLUDE REGEX "/kvgrid_mpi\\.h$")
endif()
if(NOT TARGET kvgrid_cuda)
  list(FILTER kvg_installed_headers EXCLUDE REGEX "/kernels/")
endif()
if(NOT TARGET kvgrid_nccl)
  list(FILTER kvg_installed_headers EXCLUDE REGEX "/kernels/nccl/")
endif()
install(FILES ${kvg_installed_headers} ${kvg_device_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvgrid)

file(GLOB kvg_man_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/launch/man/*.1)
install(FILES ${kvg_man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

install(TARGETS kvgrid kvgrid_static EXPORT kvgridTargets)
install(EXPORT kvgridTargets NAMESPACE kvgrid:: DESTINATION ${kvg_cmake_dir})
if(TARGET kvgrid_mpi)
  install(TARGETS kvgrid_mpi kvgrid_mpi_shared EXPORT kvgrid_mpiTargets)
  install(EXPORT kvgrid_mpiTargets NAMESPACE kvgrid:: DESTINATION ${kvg_cmake_dir})
endif()
if(TARGET kvgrid_cuda)
  install(TARGETS kvgrid_cuda EXPORT kvgrid_cudaTargets)
  install(EXPORT kvgrid_cudaTargets NAMESPACE kvgrid:: DESTINATION ${kvg_cmake_dir})
endif()
if(TARGET kvgrid_nccl)
  install(TARGETS kvgrid_nccl EXPORT kvgrid_ncclTargets)
  install(EXPORT kvgrid_ncclTargets NAMESPACE kvgrid:: DESTINATION ${kvg_cmake_dir})
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kvgridConfig.cmake.in ${PROJECT_BINARY_DIR}/kvgridConfig.cmake
  INSTALL_DESTINATION ${kvg_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvgridConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvgridConfig.cmake ${PROJECT_BINARY_DIR}/kvgridConfigVersion.cmake DESTINATION ${kvg_cmake_dir})

# The prefix is found from where the file lies, so that `--prefix` at install time and moving the tree both work.
file(RELATIVE_PATH kvg_pc_to_prefix /x/${kvg_pkgconfig_dir} /x)
configure_file(${CMAKE_CURRENT_LIST_DIR}/kvgrid.pc.in ${PROJECT_BINARY_DIR}/kvgrid.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kvgrid.pc DESTINATION ${kvg_pkgconfig_dir})
if(TARGET kvgrid_cuda)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/kvgrid_cuda.pc.in ${PROJECT_BINARY_DIR}/kvgrid_cuda.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/kvgrid_cuda.pc DESTINATION ${kvg_pkgconfig_dir})
endif()
if(TARGET kvgrid_mpi)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/kvgrid_mpi.pc.in ${PROJECT_BINARY_DIR}/kvgrid_mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/kvgrid_mpi.pc DESTINATION ${kvg_pkgconfig_dir})
endif()
