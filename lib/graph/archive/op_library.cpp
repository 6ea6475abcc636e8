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
        // What only Python would call may stay open.
        library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
        if (library == nullptr) reason = ::dlerror();
    } catch (const std::exception& error) {  // of the library's own registrations
        reason = torch_reason(error);
    }
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
