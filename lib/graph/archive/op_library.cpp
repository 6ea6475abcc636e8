#include "graph/archive/op_library.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/torch_reason.h"

namespace dslaunch::graph {

namespace {

std::string& loading() {
    static std::string file;  // the file that is being loaded
    return file;
}

std::string refusal(const std::string& reason) {
    return fmt::format("--op-library {}: {}; another build of the library may be loaded already",
                       printable(loading()), printable(reason));
}

// Reports the current exception and ends the process. If a library throws while it registers
// operators, some systems let the exception leave dlopen, and other systems call this handler.
[[noreturn]] void end_loading() {
    std::string reason = "it failed";
    try {
        if (const std::exception_ptr error = std::current_exception())
            std::rethrow_exception(error);
    } catch (const std::exception& error) {
        reason = torch_reason(error);
    }
    log_error("model", "{}", refusal(reason));
    std::_Exit(static_cast<int>(ExitCode::kInput));
}

void load(const std::string& file) {
    const std::string path = file.find('/') == std::string::npos ? "./" + file : file;
    const size_t before = c10::Dispatcher::singleton().getAllOpNames().size();
    loading() = file;
    const std::terminate_handler handler = std::set_terminate(end_loading);
    // With RTLD_LAZY, functions that only Python calls may be missing. With RTLD_GLOBAL, libraries
    // that are loaded later can use this library's symbols.
    void* library = nullptr;
    // dlopen is declared not to throw. It is called through a pointer, because a compiler would
    // remove the exception handler of a direct call.
    void* (*const volatile open)(const char*, int) = ::dlopen;
    try {
        library = open(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
    } catch (const std::exception& error) {
        fail(ExitCode::kInput, "{}", refusal(torch_reason(error)));
    }
    std::set_terminate(handler);
    const std::string reason = library == nullptr ? ::dlerror() : "";
    if (reason.find("undefined symbol: Py") != std::string::npos)
        fail(ExitCode::kInput,
             "--op-library {}: {}; it was built for Python. Name Python's own library before it, "
             "such as --op-library libpython3.11.so.1.0 (no Python code runs), or use a build for "
             "C++ only",
             printable(file), printable(reason));
    if (!reason.empty())
        fail(ExitCode::kInput,
             "--op-library {}: {}; use a shared library that was built with LibTorch 2.11 and "
             "registers operators (TORCH_LIBRARY)",
             printable(file), printable(reason));
    const size_t count = c10::Dispatcher::singleton().getAllOpNames().size() - before;
    log_debug("model", "{}: {} operators", printable(file), count);
}

}  // namespace

void load_op_libraries(const std::vector<std::string>& files) {
    for (const std::string& file : files) load(file);
}

}  // namespace dslaunch::graph
