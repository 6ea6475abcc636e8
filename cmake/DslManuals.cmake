# `cmake --install … --component manuals`: man pages, completion of the shells and the schema of
# configs, all printed by the programs that were built.
add_custom_target(man COMMAND dslaunch man --output ${CMAKE_SOURCE_DIR}/build/man DEPENDS programs)
install(CODE [[
    set(_share $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share)
    function(_print file)
        get_filename_component(folder ${_share}/${file} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        execute_process(COMMAND ${_dslaunch} ${ARGN} OUTPUT_FILE ${_share}/${file} COMMAND_ERROR_IS_FATAL ANY)
    endfunction()
]] COMPONENT manuals)
install(CODE "
    set(_dslaunch \"${CMAKE_BINARY_DIR}/bin/dslaunch\")
" COMPONENT manuals)
install(CODE [[
    execute_process(COMMAND ${_dslaunch} man --output ${_share}/man/man1 COMMAND_ERROR_IS_FATAL ANY)
    _print(bash-completion/completions/dslaunch completion bash)
    _print(zsh/site-functions/_dslaunch completion zsh)
    _print(fish/vendor_completions.d/dslaunch.fish completion fish)
    _print(dslaunch/ds_config.schema.json config schema)
]] COMPONENT manuals)
