# `cmake --install build/release --prefix DIR --component programs`: the programs as
# packages have them, below any folder. tools/package.sh adds the libraries that they need. The
# search folders that are written into them begin at the program itself, so that DIR can be moved:
# libraries that came along, then the torch of the Python environment that DIR may be. A LibTorch
# elsewhere is found by dslaunch (lib/launch/machine/torch_place.h).
set(_libraries lib/dslaunch)  # from DIR, as lib/launch/push has it
set(_torch)
set(_cuda)
foreach(_python 3.14 3.13 3.12 3.11 3.10)
    list(APPEND _torch "$ORIGIN/../lib/python${_python}/site-packages/torch/lib")
    foreach(_part nccl cu${CUDAToolkit_VERSION_MAJOR})
        list(APPEND _cuda "$ORIGIN/../python${_python}/site-packages/nvidia/${_part}/lib")
    endforeach()
endforeach()

foreach(_program dslaunch dsworker)
    if(TARGET ${_program})
        set_target_properties(${_program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${_libraries}")
        install(TARGETS ${_program} DESTINATION bin COMPONENT programs)
    endif()
endforeach()
if(TARGET dsworker)
    set_property(TARGET dsworker APPEND PROPERTY INSTALL_RPATH ${_torch})
endif()
install(FILES ${CMAKE_BINARY_DIR}/bin/zero_to_fp32.py DESTINATION bin COMPONENT programs)
install(PROGRAMS tools/dslaunch-upload DESTINATION bin COMPONENT programs)
# A text to begin with; tools/package.sh adds its tokens.
install(DIRECTORY examples/gpt-kjv DESTINATION share/dslaunch/examples COMPONENT programs)
if(TARGET dsl_cuda)
    set_target_properties(dsl_cuda PROPERTIES INSTALL_RPATH "$ORIGIN")
    set_property(TARGET dsl_cuda APPEND PROPERTY INSTALL_RPATH ${_cuda})
    install(TARGETS dsl_cuda DESTINATION ${_libraries} COMPONENT plugins)
endif()

# Writes the facts about this build that tools/package.sh reads.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/package-facts CONTENT
"version=${PROJECT_VERSION}
torch_dir='${DSL_TORCH_DIR}'
torch_version=${DSL_TORCH_VERSION}
" @ONLY)
