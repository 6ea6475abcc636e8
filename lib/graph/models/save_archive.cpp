#include "graph/models/save_archive.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>

#include <exception>

#include "storage/files/atomic_file.h"

namespace dslaunch::graph {

void save_archive(const Module& module, const std::string& path, const WrittenMemory& written,
                  const ExtraFiles& extra) {
    Bytes need;
    for (const at::Tensor& tensor : module.parameters())
        need.value += static_cast<int64_t>(tensor.nbytes());
    for (const at::Tensor& tensor : module.buffers())
        need.value += static_cast<int64_t>(tensor.nbytes());
    storage::AtomicFile file(path, need);
    // LibTorch's writer finishes the zip in its destructor, so an error must not pass through it.
    // The error is kept until the writer is destroyed, and later writes are dropped.
    std::exception_ptr error;
    const auto write = [&](const void* data, size_t length) {
        const std::span memory(static_cast<const std::byte*>(data), length);
        try {
            if (error == nullptr) file.write(memory);
            if (written) written(memory);
        } catch (...) {
            error = std::current_exception();
        }
        return length;
    };
    torch::jit::ExportModule(module, write, extra);
    if (error != nullptr) std::rethrow_exception(error);
    file.commit();
}

}  // namespace dslaunch::graph
