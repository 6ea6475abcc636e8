#include "launch/transport/join/pmix_session.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/text.h"

#if defined(__SANITIZE_ADDRESS__)
// Keeps LeakSanitizer quiet: the PMIx library holds a few bytes until the process ends.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
    return "leak:libpmix";
}
#endif

namespace dslaunch::launch {
namespace {

// The part of the PMIx standard's C interface (versions 2 to 5) that is used here.
struct Process {
    char name_space[256];
    uint32_t rank;
};
struct Value {
    uint16_t type;
    union {
        char* string;
        char room[56];  // large enough for the value in every version
    } data;
};
constexpr uint16_t kString = 3;
constexpr uint8_t kToAll = 3;
constexpr int kSuccess = 0;

}  // namespace

struct PmixSession::Library {
    void* handle = nullptr;
    int (*init)(Process*, void*, size_t) = nullptr;
    int (*finalize)(const void*, size_t) = nullptr;
    int (*put)(uint8_t, const char*, Value*) = nullptr;
    int (*commit)() = nullptr;
    int (*fence)(const Process*, size_t, const void*, size_t) = nullptr;
    int (*get)(const Process*, const char*, const void*, size_t, Value**) = nullptr;
    const char* (*error_string)(int) = nullptr;
    Process self{};
    bool finished = false;

    template <typename Function>
    void find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(::dlsym(handle, name));
        if (function == nullptr) fail(ExitCode::kSetup, "libpmix.so.2 has no {}", name);
    }

    void check(int status, const char* what) const {
        if (status == kSuccess) return;
        fail(ExitCode::kSetup, "PMIx: {}: {}", what, printable(error_string(status)));
    }
};

PmixSession::PmixSession() : library_(std::make_unique<Library>()) {
    Library& library = *library_;
    library.handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library.handle == nullptr) {
        fail(ExitCode::kSetup, "cannot load PMIx: {}", printable(::dlerror()));
    }
    library.find(library.error_string, "PMIx_Error_string");
    library.find(library.init, "PMIx_Init");
    library.find(library.finalize, "PMIx_Finalize");
    library.find(library.put, "PMIx_Put");
    library.find(library.commit, "PMIx_Commit");
    library.find(library.fence, "PMIx_Fence");
    library.find(library.get, "PMIx_Get");
    library.check(library.init(&library.self, nullptr, 0), "no server answers");
}

PmixSession::PmixSession(PmixSession&&) noexcept = default;
PmixSession::~PmixSession() = default;

uint32_t PmixSession::rank() const {
    return library_->self.rank;
}

void PmixSession::put(const std::string& key, const std::string& value) {
    Value entry{};
    entry.type = kString;
    std::string copy = value;
    entry.data.string = copy.data();
    library_->check(library_->put(kToAll, key.c_str(), &entry), "cannot store a value");
    library_->check(library_->commit(), "cannot publish a value");
}

void PmixSession::meet() {
    library_->check(library_->fence(nullptr, 0, nullptr, 0), "cannot synchronize the processes");
}

std::string PmixSession::get(uint32_t rank, const std::string& key) {
    Process process = library_->self;
    process.rank = rank;
    Value* value = nullptr;
    library_->check(library_->get(&process, key.c_str(), nullptr, 0, &value),
                    "another process has published nothing");
    if (value == nullptr || value->type != kString || value->data.string == nullptr) {
        fail(ExitCode::kSetup, "PMIx: process {} published a value that is not text", rank);
    }
    std::string text = value->data.string;
    std::free(value->data.string);
    std::free(value);
    return text;
}

void PmixSession::finish() {
    if (std::exchange(library_->finished, true)) return;
    library_->check(library_->finalize(nullptr, 0), "cannot disconnect");
}

}  // namespace dslaunch::launch
