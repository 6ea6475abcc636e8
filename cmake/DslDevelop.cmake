# `cmake --install build/release --prefix DIR --component library`: what programs are built with. The
# libraries, the headers of include/, and how CMake and pkg-config find them below any prefix.
include(CMakePackageConfigHelpers)
set(_described ${CMAKE_BINARY_DIR}/library)
configure_file(cmake/dslaunchConfig.cmake.in ${_described}/dslaunchConfig.cmake @ONLY)
configure_file(cmake/dslaunch.pc.in ${_described}/dslaunch.pc @ONLY)
write_basic_package_version_file(${_described}/dslaunchConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)

# A package brings the libraries of these in lib/dslaunch, as for the programs.
foreach(_library dslaunch_client dslaunch_engine)
    if(TARGET ${_library})
        set_target_properties(${_library} PROPERTIES INSTALL_RPATH "$ORIGIN/dslaunch")
        install(TARGETS ${_library} LIBRARY DESTINATION lib COMPONENT library)
    endif()
endforeach()
install(FILES include/dslaunch/error.h include/dslaunch/launcher.h include/dslaunch/plan.h
    DESTINATION include/dslaunch COMPONENT library)
if(TARGET dslaunch_engine)
    install(FILES include/dslaunch/engine.h DESTINATION include/dslaunch COMPONENT library)
endif()
install(FILES ${_described}/dslaunchConfig.cmake ${_described}/dslaunchConfigVersion.cmake
    DESTINATION lib/cmake/dslaunch COMPONENT library)
install(FILES ${_described}/dslaunch.pc DESTINATION lib/pkgconfig COMPONENT library)
install(DIRECTORY examples/engine DESTINATION share/dslaunch/examples COMPONENT library)
