# dsl_library(NAME [HOT|TORCH|JIT] [SOURCES files...] [DEPS targets...]): the static library dsl_NAME,
# made of the *.cpp of this folder and of its sub-folders that have no CMakeLists.txt of their own.
# HOT works in every step or on every byte and is compiled with -O3; so is TORCH, which uses LibTorch's
# tensors. JIT uses LibTorch's graphs too. A release build compiles all else with -O1: that costs a
# start nothing that can be measured, and takes a third off the time of a build.
# dsl_test(NAME [TORCH|JIT] [EACH_FILE [FIRST files...]] [SECONDS n] [BATCH n] [LABELS labels...]
# [DEPS targets...]): one Catch2 program test_NAME, made of *_test.cpp in the same way. EACH_FILE makes a test
# of each file, so that several run at once, those of FIRST before all others. SECONDS is about what it
# takes: ctest starts the longest first. BATCH is how many files to compile as one (6 if it is not given).
# The label "long" marks minutes: only `make test-long` runs such a test. Test cases tagged [.long] get a
# second test NAME_long with that label.
# Warnings, sanitizers and precompiled headers are applied here and nowhere else.
find_program(DSL_CCACHE ccache)
if(DSL_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${DSL_CCACHE})
endif()
if(NOT CMAKE_CROSSCOMPILING)  # for which GCC would look for a linker of its own under another name
    find_program(DSL_LLD ld.lld)
endif()

add_library(dsl_flags INTERFACE)
target_compile_options(dsl_flags INTERFACE -Wall -Wextra -Wconversion -Werror -Wno-sign-conversion
    -fno-omit-frame-pointer $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    # As on x86, where the tests run: ARM's char is unsigned, and its compiler may fuse a product and
    # a sum, which rounds once where x86 rounds twice.
    target_compile_options(dsl_flags INTERFACE -fsigned-char -ffp-contract=off)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms inside libstdc++'s strings (GCC bugs 105329 and 105651), which a precompiled
    # header does not keep apart from our own code.
    target_compile_options(dsl_flags INTERFACE -Wno-stringop-overflow -Wno-stringop-overread
        -Wno-array-bounds)
endif()
target_include_directories(dsl_flags INTERFACE ${CMAKE_SOURCE_DIR}/lib ${CMAKE_SOURCE_DIR}/apps)
target_compile_definitions(dsl_flags INTERFACE DSL_VERSION="${PROJECT_VERSION}")
if(DSL_ODR)  # types are compared when a program is linked, by GCC's own linker plugin
    target_compile_options(dsl_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-flto>)
    target_link_options(dsl_flags INTERFACE -flto=auto -Wodr -Werror=odr)
elseif(DSL_LLD)
    target_link_options(dsl_flags INTERFACE -fuse-ld=lld)
endif()
if(DSL_FUZZ)
    target_compile_options(dsl_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(DSL_SANITIZE)
    target_compile_options(dsl_flags INTERFACE -fsanitize=${DSL_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(dsl_flags INTERFACE -fsanitize=${DSL_SANITIZE})
endif()

# A file compiled with LibTorch takes up to 2 GiB: as many at once as the free memory holds.
cmake_host_system_information(RESULT _free_mib QUERY AVAILABLE_PHYSICAL_MEMORY)
math(EXPR _torch_jobs "${_free_mib} / 2048")
if(_torch_jobs LESS 1)
    set(_torch_jobs 1)
endif()
set_property(GLOBAL APPEND PROPERTY JOB_POOLS torch=${_torch_jobs})

# Headers are precompiled once for each kind of target and reused by all of that kind:
#   std, hot    the standard library and fmt
#   torch       the same, and LibTorch's tensors
#   jit         the same, and TorchScript's graphs and modules
#   test, torch_test, jit_test   each with Catch2
# What loads a precompiled header must be optimized as it was: hot and torch with -O3 (GCC 12 crashes
# otherwise).
# A header that few files use does not belong here: what is precompiled costs every file that loads
# it (measured: torch/script.h 6.4 s a file, ATen/core/Tensor.h 0.6 s).
set(dsl_std_headers <algorithm> <array> <chrono> <cstdint> <functional> <map> <memory> <optional>
    <set> <span> <string> <string_view> <utility> <vector> <fmt/core.h>)
set(dsl_torch_headers ${dsl_std_headers} <ATen/core/Tensor.h> <ATen/core/ivalue.h>
    <ATen/core/grad_mode.h> <ATen/TensorOperators.h>)
set(dsl_jit_headers ${dsl_torch_headers} <torch/csrc/jit/ir/ir.h> <torch/csrc/jit/api/module.h>)

function(dsl_optimize target kind)
    if(kind STREQUAL "hot" OR kind STREQUAL "torch")
        target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O3>)
    endif()
endfunction()

# A precompiled header serves one of -fPIC and -fPIE: executables are compiled as the libraries are.
function(dsl_use_pch target kind)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
    endif()
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
        set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
        target_compile_options(${target} PRIVATE -fPIC)
    endif()
    target_precompile_headers(${target} REUSE_FROM dsl_${kind}_pch)
    dsl_optimize(${target} ${kind})
endfunction()

# The owner of a precompiled header: dsl_pch(KIND HEADERS... LINK targets...)
function(dsl_pch kind)
    cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch/${kind}.cpp
        CONTENT "// Owner of the precompiled headers of kind ${kind}.\n")
    add_library(dsl_${kind}_pch OBJECT ${CMAKE_BINARY_DIR}/pch/${kind}.cpp)
    target_link_libraries(dsl_${kind}_pch PUBLIC dsl_flags ${ARG_LINK})
    target_precompile_headers(dsl_${kind}_pch PRIVATE ${ARG_UNPARSED_ARGUMENTS})
    dsl_optimize(dsl_${kind}_pch ${kind})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        target_compile_options(dsl_${kind}_pch PRIVATE -fpch-preprocess)
    endif()
endfunction()

# Headers cost a file more than its own lines do, so several files of a target are compiled as one:
# few enough that a change of one of them stays a matter of seconds. Two files of a target therefore
# must not give helpers in their anonymous namespaces the same name. A batch names its files by the
# paths that #include uses, so that ccache knows it again in another clone (CMake's own UNITY_BUILD
# writes absolute ones). A file with definitions of its own stays alone. DSL_BATCH_FACTOR: clang-tidy,
# whose time is that of the headers, takes larger batches; 0: each file by itself. REQUIRES: properties
# of files that stay alone (SKIP_UNITY_BUILD_INCLUSION, COMPILE_DEFINITIONS) are set before.
set(DSL_BATCH_FACTOR 1 CACHE STRING "how many times as many files to compile as one; 0: one")
function(dsl_use_batches target files)
    math(EXPR files "${files} * ${DSL_BATCH_FACTOR}")
    if(files EQUAL 0)
        return()
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # a batch is not the file in which its types stand
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
    endif()
    get_target_property(sources ${target} SOURCES)
    set(remaining)
    set(alone)
    foreach(source ${sources})
        get_source_file_property(is_alone ${source} SKIP_UNITY_BUILD_INCLUSION)
        get_source_file_property(has_definitions ${source} COMPILE_DEFINITIONS)
        cmake_path(IS_PREFIX CMAKE_BINARY_DIR ${source} NORMALIZE is_made)  # by a command of the build
        if(is_alone OR has_definitions OR is_made)
            list(APPEND alone ${source})
        else()
            list(APPEND remaining ${source})
        endif()
    endforeach()
    set(batches)
    while(remaining)
        set(text)
        foreach(turn RANGE 1 ${files})
            if(remaining)
                list(POP_FRONT remaining source)
                cmake_path(ABSOLUTE_PATH source)
                file(RELATIVE_PATH source ${CMAKE_SOURCE_DIR} ${source})
                string(REGEX REPLACE "^(lib|apps|tests)/" "" source ${source})
                string(APPEND text "#include \"${source}\"\n")
            endif()
        endforeach()
        list(LENGTH batches number)
        set(batch ${CMAKE_CURRENT_BINARY_DIR}/${target}_batches/batch_${number}.cpp)
        file(CONFIGURE OUTPUT ${batch} CONTENT "${text}" @ONLY)
        list(APPEND batches ${batch})
    endwhile()
    set_target_properties(${target} PROPERTIES SOURCES "${batches};${alone}")
endfunction()

function(dsl_use_torch target kind)
    target_link_libraries(${target} PUBLIC dsl_torch)
    set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE torch)
    if(kind STREQUAL "jit")  # whose headers cost each batch the most (measured: 3.8 s)
        dsl_use_batches(${target} 12)
    else()
        dsl_use_batches(${target} 9)
    endif()
    dsl_use_pch(${target} ${kind})
endfunction()

# The files of this folder and of its sub-folders that match PATTERN, without the sub-folders that
# are targets of their own.
function(dsl_glob result pattern)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${pattern})
    file(GLOB_RECURSE others ${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt)
    foreach(other ${others})
        get_filename_component(folder ${other} DIRECTORY)
        list(FILTER found EXCLUDE REGEX "^${folder}/")
    endforeach()
    set(${result} ${found} PARENT_SCOPE)
endfunction()

function(dsl_library name)
    cmake_parse_arguments(ARG "TORCH;JIT;HOT" "" "SOURCES;DEPS" ${ARGN})
    if(NOT ARG_SOURCES)
        dsl_glob(ARG_SOURCES *.cpp)
    endif()
    if(ARG_SOURCES)
        add_library(dsl_${name} STATIC ${ARG_SOURCES})
        target_link_libraries(dsl_${name} PUBLIC dsl_flags ${ARG_DEPS})
        if(ARG_JIT)
            dsl_use_torch(dsl_${name} jit)
        elseif(ARG_TORCH)
            dsl_use_torch(dsl_${name} torch)
        else()
            dsl_use_batches(dsl_${name} 12)
            if(ARG_HOT)
                dsl_use_pch(dsl_${name} hot)
            else()
                dsl_use_pch(dsl_${name} std)
            endif()
        endif()
    else()
        add_library(dsl_${name} INTERFACE)
        target_link_libraries(dsl_${name} INTERFACE dsl_flags ${ARG_DEPS})
    endif()
endfunction()

function(dsl_test name)
    cmake_parse_arguments(ARG "TORCH;JIT;EACH_FILE;ONE_THREAD" "SECONDS;BATCH" "DEPS;LABELS;FIRST" ${ARGN})
    dsl_glob(sources *_test.cpp)
    if(NOT sources)
        return()
    endif()
    add_executable(test_${name} ${sources})
    target_link_libraries(test_${name} PRIVATE dsl_flags ${ARG_DEPS} dsl_test_main)
    if(ARG_JIT)
        dsl_use_torch(test_${name} jit_test)
    elseif(ARG_TORCH)
        dsl_use_torch(test_${name} torch_test)
    else()
        if(NOT ARG_BATCH)
            set(ARG_BATCH 6)
        endif()
        dsl_use_batches(test_${name} ${ARG_BATCH})
        dsl_use_pch(test_${name} test)
    endif()
    if(ARG_EACH_FILE)
        set(tests)
        foreach(source ${sources})
            file(STRINGS ${source} cases REGEX "TEST_CASE\\(")
            file(STRINGS ${source} hidden REGEX "\\[\\.[a-z]+\\]")
            list(LENGTH cases cases_count)
            list(LENGTH hidden hidden_count)
            if(NOT hidden_count LESS cases_count)  # nothing of it runs in `make test`
                continue()
            endif()
            get_filename_component(file ${source} NAME_WE)
            string(REGEX REPLACE "_test$" "" part ${file})
            add_test(NAME ${name}_${part} COMMAND test_${name} --warn NoTests --filenames-as-tags
                "[#${file}]~[.]" WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
            list(APPEND tests ${name}_${part})
        endforeach()
    else()
        add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
        set(tests ${name})
    endif()
    if(ARG_TORCH OR ARG_JIT)  # numbers of LibTorch's kernels, which differ between processors
        list(APPEND ARG_LABELS processor)
    endif()
    set_tests_properties(${tests} PROPERTIES TIMEOUT 1800 LABELS "${ARG_LABELS}")
    if(ARG_ONE_THREAD)  # ranks are threads of it: a second one of each would spin for work
        set_tests_properties(${tests} PROPERTIES ENVIRONMENT OMP_NUM_THREADS=1)
    endif()
    if(ARG_SECONDS)  # the longest ones start first
        set_tests_properties(${tests} PROPERTIES COST ${ARG_SECONDS})
    endif()
    foreach(part ${ARG_FIRST})
        set_tests_properties(${name}_${part} PROPERTIES COST 400)
    endforeach()
    foreach(source ${sources})
        file(STRINGS ${source} long_cases REGEX "\\[\\.long\\]|\\[matrix\\]")
        if(long_cases AND NOT TEST ${name}_long)
            add_test(NAME ${name}_long COMMAND test_${name} "[.long],[matrix]"
                WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
            set(environment DSL_WHOLE_MATRIX=1)  # tests/support/every_nth.h
            if(ARG_ONE_THREAD)
                list(APPEND environment OMP_NUM_THREADS=1)
            endif()
            set_tests_properties(${name}_long PROPERTIES TIMEOUT 3600 LABELS long
                ENVIRONMENT "${environment}")
        endif()
    endforeach()
endfunction()
