#include "graph/models/archive.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/export.h>

#include "storage/atomic_file.h"

namespace dslaunch {

void save_archive(const torch::jit::Module& module, const std::string& path) {
    Bytes need;
    for (const at::Tensor& tensor : module.parameters())
        need.value += static_cast<int64_t>(tensor.nbytes());
    for (const at::Tensor& tensor : module.buffers())
        need.value += static_cast<int64_t>(tensor.nbytes());
    AtomicFile file(path, need);
    torch::jit::ExportModule(module, [&](const void* data, size_t length) {
        file.write({static_cast<const std::byte*>(data), length});
        return length;
    });
    file.commit();
}

}  // namespace dslaunch
