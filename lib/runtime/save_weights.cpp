#include "runtime/save_weights.h"

#include <ATen/ATen.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <filesystem>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/fd.h"
#include "graph/models/archive.h"
#include "storage/safetensors.h"

namespace dslaunch {

namespace {

DType dtype_of(const std::string& name, const at::Tensor& tensor) {
    switch (tensor.scalar_type()) {
        case at::kFloat:
            return DType::kF32;
        case at::kDouble:
            return DType::kF64;
        case at::kHalf:
            return DType::kF16;
        case at::kBFloat16:
            return DType::kBF16;
        case at::kLong:
            return DType::kI64;
        case at::kInt:
            return DType::kI32;
        case at::kShort:
            return DType::kI16;
        case at::kChar:
            return DType::kI8;
        case at::kByte:
            return DType::kU8;
        case at::kBool:
            return DType::kBool;
        default:
            fail(ExitCode::kInput, "{} is {}, which safetensors cannot hold", name,
                 c10::toString(tensor.scalar_type()));
    }
}

void make_folder(const std::string& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail(ExitCode::kDisk, "{}: cannot be made: {}", folder, error.message());
}

}  // namespace

void check_room_for_weights(Model& model, const std::string& folder) {
    make_folder(folder);
    Bytes need;
    // model.safetensors holds a tensor under each of its names, model.pt once.
    const auto add_all = [&](const auto& items) {
        for (const auto& item : items)
            need.value += static_cast<int64_t>(item.tensor.nbytes() * (2 + item.aliases.size()));
    };
    add_all(model.parameters());
    add_all(model.buffers());
    struct statvfs info {};
    if (::statvfs(folder.c_str(), &info) != 0)
        fail(ExitCode::kDisk, "{}: its free space cannot be told: {}", folder, errno_text(errno));
    const Bytes free{static_cast<int64_t>(info.f_bavail * info.f_frsize)};
    if (free.value < need.value)
        fail(ExitCode::kDisk,
             "{}: the trained weights need {} there and {} are free: make room, or name another "
             "folder by --output",
             folder, to_text(need), to_text(free));
}

void save_weights(Model& model, const std::string& folder) {
    make_folder(folder);
    std::vector<at::Tensor> rows;  // hold what the entries view
    std::vector<SafetensorsEntry> entries;
    const auto add = [&](const std::string& name, const at::Tensor& tensor) {
        rows.push_back(tensor.detach().contiguous());
        const at::Tensor& values = rows.back();
        entries.push_back(
            {name,
             dtype_of(name, values),
             values.sizes().vec(),
             {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()}});
    };
    const auto add_all = [&](const auto& items) {
        for (const auto& item : items) {
            add(item.name, item.tensor);
            for (const std::string& alias : item.aliases) add(alias, item.tensor);
        }
    };
    add_all(model.parameters());
    add_all(model.buffers());
    write_safetensors(folder + "/model.safetensors", entries, {{"format", "pt"}});
    save_archive(model.module(), folder + "/model.pt");
}

}  // namespace dslaunch
