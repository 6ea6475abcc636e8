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

# The wheel bundles headers of a newer fmt, which break the distribution's spdlog: the system's come first.
set(_shadow ${CMAKE_BINARY_DIR}/shadow)
file(MAKE_DIRECTORY ${_shadow})
file(CREATE_LINK /usr/include/fmt ${_shadow}/fmt SYMBOLIC)

add_library(dsl_torch INTERFACE)
target_include_directories(dsl_torch SYSTEM BEFORE INTERFACE ${_shadow} ${DSL_TORCH_DIR}/include
    ${DSL_TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(dsl_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
# CMake adds LibTorch's folder to the rpath by itself, behind a target's own BUILD_RPATH.
target_link_options(dsl_torch INTERFACE -Wl,--as-needed -Wl,--allow-shlib-undefined -Wl,-rpath-link,${DSL_TORCH_DIR}/lib)
target_link_libraries(dsl_torch INTERFACE fmt::fmt spdlog::spdlog Threads::Threads ${DSL_TORCH_DIR}/lib/libtorch_cpu.so ${DSL_TORCH_DIR}/lib/libc10.so)

file(WRITE ${CMAKE_BINARY_DIR}/torch_pch.cpp "// Owner of the precompiled LibTorch headers.\n")
add_library(dsl_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cpp)
target_link_libraries(dsl_torch_pch PUBLIC dsl_flags dsl_torch)
target_precompile_headers(dsl_torch_pch PRIVATE <ATen/ATen.h> <torch/script.h> <fmt/core.h> <string> <vector> <map>
    <memory> <unordered_map>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(dsl_torch_pch PRIVATE -fpch-preprocess)
endif()
