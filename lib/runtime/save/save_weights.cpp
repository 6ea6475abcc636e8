#include "runtime/save/save_weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/kinds/dtype.h"
#include "base/machine/disk_room.h"
#include "graph/archive/scalar_types.h"
#include "graph/lower/device_rewrite.h"
#include "graph/memory/memory_order.h"
#include "graph/models/save_archive.h"
#include "storage/files/mapped_file.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::runtime {

namespace {

// Replaces the memory of TENSOR by the part of FILE that begins at OFFSET. The part has the
// elements in fp32, in the memory order of TENSOR.
void read_from(const std::shared_ptr<const storage::MappedFile>& file, int64_t offset,
               at::Tensor tensor) {
    const at::NoGradGuard no_grad;
    const auto* const data = reinterpret_cast<const float*>(file->bytes().data() + offset);
    tensor.set_data(graph::as_in_memory(data, tensor, [file](void*) {}));
}

// Releases the part of MEMORY that is in FILE. It is not read again.
void give_back(const storage::MappedFile& file, std::span<const std::byte> memory) {
    const std::less<> before;
    const std::span<const std::byte> bytes = file.bytes();
    if (before(memory.data(), bytes.data()) || !before(memory.data(), bytes.data() + bytes.size()))
        return;
    file.discard(memory);
}

}  // namespace

void check_room_for_output(const graph::Model& model, const OutputNeed& need) {
    storage::require_room_for_model(need.folder);
    storage::make_folder(need.folder);
    Bytes weights, checkpoint{need.states_numel * need.states * int64_t{sizeof(float)}};
    // The space for a tensor: model.safetensors contains it once under each of its names, and
    // model.pt and a checkpoint contain it once. A tensor that is not row-major is also in a
    // temporary file.
    const auto add_all = [&](const auto& items) {
        for (const auto& item : items) {
            const size_t strided = item.tensor.is_contiguous() ? 0 : 1;
            if constexpr (requires { item.is_helper; }) {
                // Helpers are scores of masks, which only checkpoints contain, and teachers, which
                // are not saved.
                if (item.is_helper) {
                    if (item.tensor.requires_grad())
                        checkpoint.value += static_cast<int64_t>(item.tensor.nbytes());
                    continue;
                }
            }
            checkpoint.value += static_cast<int64_t>(item.tensor.nbytes());
            weights.value +=
                static_cast<int64_t>(item.tensor.nbytes() * (2 + strided + item.aliases.size()));
        }
    };
    add_all(model.parameters());
    add_all(model.buffers());
    for (const graph::ModelView& view : model.views())
        weights.value += static_cast<int64_t>(view.tensor.nbytes());
    if (need.writes_smaller) weights.value *= 2;
    const std::optional<DiskSpace> disk = disk_space(need.folder);
    if (!disk)
        fail(ExitCode::kDisk, "{}: cannot determine the free space of this folder: {}", need.folder,
             errno_text(errno));
    if (disk->free < weights + checkpoint)
        fail(ExitCode::kDisk,
             "{}: the trained weights need {} in this folder and a checkpoint needs {}, but only "
             "{} are free; free some space, or name another folder with --output",
             need.folder, to_text(weights), to_text(checkpoint), to_text(disk->free));
}

WeightWriter::WeightWriter(graph::Model& model, std::string folder, std::span<const int> elsewhere)
    : model_(model), folder_(std::move(folder)), homes_(model.parameters().size()) {
    storage::require_room_for_model(folder_);
    storage::make_folder(folder_);
    for (const int parameter : elsewhere) homes_[parameter].elsewhere = true;
    weights_.emplace(folder_ + "/model.safetensors", entries(),
                     std::map<std::string, std::string>{{"format", "pt"}});
}

std::vector<storage::SafetensorsEntry> WeightWriter::entries() {
    std::vector<storage::SafetensorsEntry> entries;
    const auto add = [&](Home& home, const auto& item, DType dtype) {
        home.entry = entries.size();
        entries.push_back({item.name, dtype, item.tensor.sizes().vec(), {}});
        for (const std::string& alias : item.aliases)
            entries.push_back({alias, dtype, item.tensor.sizes().vec(), {}});
        home.names = entries.size() - home.entry;
    };
    const auto add_views = [&](Home& home, const at::Tensor& owner, DType dtype) {
        if (home.names == 0) home.entry = entries.size();
        for (const graph::ModelView& view : model_.views()) {
            if (!view.owner.is_same(owner) || view.name.empty() || !view.is_persistent) continue;
            entries.push_back({view.name, dtype, view.tensor.sizes().vec(), {}});
            home.views.push_back(&view);
        }
    };
    for (size_t i = 0; i < homes_.size(); ++i) {
        const graph::ModelParameter& parameter = model_.parameters()[i];
        if (parameter.is_helper) continue;
        const DType dtype =
            homes_[i].elsewhere ? DType::kF32 : graph::dtype_of(parameter.name, parameter.tensor);
        add(homes_[i], parameter, dtype);
        add_views(homes_[i], parameter.tensor, dtype);
    }
    for (const graph::ModelBuffer& buffer : model_.buffers()) {
        Home& home = buffer_homes_.emplace_back();
        const DType dtype = graph::dtype_of(buffer.name, buffer.tensor);
        if (buffer.is_persistent) add(home, buffer, dtype);
        add_views(home, buffer.tensor, dtype);
    }
    return entries;
}

// Writes TENSOR, which has the shape and strides of the model's tensor, under all its names.
void WeightWriter::write(const Home& home, const at::Tensor& tensor) {
    const auto put_rows = [&](size_t entry, size_t names, const at::Tensor& values) {
        const at::Tensor rows = values.contiguous();
        const std::span bytes(static_cast<const std::byte*>(rows.const_data_ptr()), rows.nbytes());
        for (size_t i = 0; i < names; ++i) weights_->write(entry + i, bytes);
    };
    const at::Tensor values = tensor.detach().to(at::kCPU);
    put_rows(home.entry, home.names, values);
    for (size_t v = 0; v < home.views.size(); ++v)
        put_rows(home.entry + home.names + v, 1, home.views[v]->view.of(values));
}

void WeightWriter::put(int index, std::span<const float> values) {
    Home& home = homes_[index];
    const graph::ModelParameter& parameter = model_.parameters()[index];
    if (parameter.is_helper) return;
    DSL_CHECK(home.elsewhere && std::ssize(values) == parameter.tensor.numel(),
              "{}: {} values were given for {} elements", parameter.name, values.size(),
              parameter.tensor.numel());
    const at::NoGradGuard no_grad;
    write(home, graph::as_in_memory(values.data(), parameter.tensor));
    if (graph::strides_in_memory(parameter.tensor).empty()) return;
    if (!strided_)
        strided_.emplace(folder_ + "/model.pt.strided",
                         Bytes{static_cast<int64_t>(values.size_bytes())});
    home.strided_offset = strided_bytes_;
    strided_->write(std::as_bytes(values));
    strided_bytes_ += static_cast<int64_t>(values.size_bytes());
}

void WeightWriter::finish() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < homes_.size(); ++i)
        if (!homes_[i].elsewhere && !model_.parameters()[i].is_helper)
            write(homes_[i], model_.parameters()[i].tensor);
    for (size_t i = 0; i < buffer_homes_.size(); ++i)
        write(buffer_homes_[i], model_.buffers()[i].tensor);
    weights_->commit();
    const auto weights =
        std::make_shared<const storage::MappedFile>(folder_ + "/model.safetensors");
    std::shared_ptr<const storage::MappedFile> strided;
    if (strided_) strided = std::make_shared<const storage::MappedFile>(strided_->temporary_path());
    for (size_t i = 0; i < homes_.size(); ++i) {
        if (!homes_[i].elsewhere || model_.parameters()[i].is_helper) continue;
        if (homes_[i].strided_offset >= 0) {
            read_from(strided, homes_[i].strided_offset, model_.parameters()[i].tensor);
        } else {
            read_from(weights, weights_->offset(homes_[i].entry), model_.parameters()[i].tensor);
        }
    }
    // Moves the model to the CPU, so that the file can be loaded on any machine. Tensors whose
    // values came by put() are already mapped from the written files.
    graph::move_to_device(model_, c10::kCPU);
    model_.renew_views();
    graph::save_archive(
        model_.module(), folder_ + "/model.pt",
        [&](std::span<const std::byte> memory) {
            give_back(*weights, memory);
            if (strided) give_back(*strided, memory);
        },
        model_.extra_files());
}

}  // namespace dslaunch::runtime
