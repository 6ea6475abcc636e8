# LibTorch as our own imported targets. TorchConfig.cmake insists on CUDA and fails where there is no GPU, so it is not used.
# DSL_TORCH_DIR is the folder that holds include/ and lib/ (tools/setup.sh finds or fetches it).
set(DSL_TORCH_DIR "" CACHE PATH "Folder with LibTorch's include/ and lib/")
if(NOT DSL_TORCH_DIR AND EXISTS ${CMAKE_SOURCE_DIR}/build/torch-dir)
    file(STRINGS ${CMAKE_SOURCE_DIR}/build/torch-dir DSL_TORCH_DIR)
endif()
if(NOT DSL_TORCH_DIR)
    set(_root $ENV{DSLAUNCH_CACHE})
    if(NOT _root)
        set(_root $ENV{HOME}/.cache/dslaunch)
    endif()
    set(DSL_TORCH_DIR ${_root}/torch-2.11.0/torch)
endif()
if(NOT EXISTS ${DSL_TORCH_DIR}/lib/libtorch_cpu.so)
    message(FATAL_ERROR "no LibTorch in DSL_TORCH_DIR=${DSL_TORCH_DIR}: run tools/setup.sh, or give the folder that holds include/ and lib/")
endif()
# "2.11": the versions with which dsworker runs. C++ programs of one do not run with another.
file(STRINGS ${DSL_TORCH_DIR}/include/torch/headeronly/version.h _version
    REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" DSL_TORCH_VERSION "${_version}")

# The wheel bundles headers of a newer fmt, which break the distribution's spdlog: the system's come first.
set(_shadow ${CMAKE_BINARY_DIR}/shadow)
file(MAKE_DIRECTORY ${_shadow})
file(CREATE_LINK ${CMAKE_SYSROOT}/usr/include/fmt ${_shadow}/fmt SYMBOLIC)

add_library(dsl_torch INTERFACE)
target_include_directories(dsl_torch SYSTEM BEFORE INTERFACE ${_shadow} ${DSL_TORCH_DIR}/include
    ${DSL_TORCH_DIR}/include/torch/csrc/api/include)
# AT_PER_OPERATOR_HEADERS: LibTorch's own headers then include the operators that they use instead
# of all of them.
target_compile_definitions(dsl_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO
    AT_PER_OPERATOR_HEADERS)
# CMake adds LibTorch's folder to the rpath by itself, behind a target's own BUILD_RPATH.
target_link_options(dsl_torch INTERFACE -Wl,--as-needed -Wl,--allow-shlib-undefined -Wl,-rpath-link,${DSL_TORCH_DIR}/lib)
target_link_libraries(dsl_torch INTERFACE fmt::fmt spdlog::spdlog Threads::Threads ${DSL_TORCH_DIR}/lib/libtorch_cpu.so ${DSL_TORCH_DIR}/lib/libc10.so)

dsl_pch(torch ${dsl_torch_headers} LINK dsl_torch)
dsl_pch(jit ${dsl_jit_headers} LINK dsl_torch)
