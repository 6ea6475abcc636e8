#include "graph/archive/op_library.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/torch_reason.h"

namespace dslaunch::graph {

namespace {

void load(const std::string& file) {
    const std::string path = file.find('/') == std::string::npos ? "./" + file : file;
    const size_t before = c10::Dispatcher::singleton().getAllOpNames().size();
    void* library = nullptr;
    std::string reason;
    try {
        // Functions that only Python would call may stay open; a library that is named later finds
        // what this one has.
        library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
        if (library == nullptr) reason = ::dlerror();
    } catch (const std::exception& error) {  // of the library's own registrations
        reason = torch_reason(error);
    }
    if (reason.find("undefined symbol: Py") != std::string::npos)
        fail(
            ExitCode::kInput,
            "--op-library {}: {}; it was built for Python: name Python's own library before it, as "
            "--op-library libpython3.11.so.1.0, which runs nothing, or a build for C++ alone",
            printable(file), printable(reason));
    if (!reason.empty())
        fail(ExitCode::kInput,
             "--op-library {}: {}; give a shared library that was built with LibTorch 2.11 and "
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
