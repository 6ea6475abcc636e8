#include "infer/model/weight_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "kernels/element/half_bits.h"
#include "kernels/flat_optimizer.h"
#include "storage/adapter/adapter_tensors.h"

namespace dslaunch::infer {

using kernels::MatrixForm;
using kernels::MatrixShape;
using storage::FolderWeight;
using storage::SafetensorsEntry;

namespace {

// Rows of a matrix are made in blocks of so many numbers, so that making it takes little memory
// beside the result.
constexpr int64_t kBlockNumel = int64_t{1} << 22;

MatrixForm form_of(DType dtype) {
    if (dtype == DType::kF32) return MatrixForm::kF32;
    return dtype == DType::kBF16 ? MatrixForm::kBf16 : MatrixForm::kFp16;
}

DType dtype_of(MatrixForm form) {
    if (form == MatrixForm::kF32) return DType::kF32;
    return form == MatrixForm::kBf16 ? DType::kBF16 : DType::kF16;
}

void from_fp32(const float* from, MatrixForm form, int64_t numel, std::byte* to) {
    if (form == MatrixForm::kF32) {
        std::memcpy(to, from, static_cast<size_t>(numel) * sizeof(float));
        return;
    }
    kernels::to_half(from, reinterpret_cast<uint16_t*>(to), numel, dtype_of(form));
}

bool is_aligned(const std::byte* data, DType dtype) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(dtype_bytes(dtype)) == 0;
}

// The numbers of ROWS of the part, [rows.numel, part.inputs.numel] fp32.
std::vector<float> rows_of(const SafetensorsEntry& entry, const MatrixPart& part, Range rows) {
    const int64_t bytes = dtype_bytes(entry.dtype), columns = part.inputs.numel;
    std::vector<float> numbers(static_cast<size_t>(rows.numel * columns));
    if (!part.transposed) {
        for (int64_t r = 0; r < rows.numel; ++r)
            to_fp32(entry.bytes.data() + ((rows.begin + r) * part.in + part.inputs.begin) * bytes,
                    entry.dtype, columns, numbers.data() + r * columns);
        return numbers;
    }
    std::vector<float> line(static_cast<size_t>(rows.numel));
    for (int64_t c = 0; c < columns; ++c) {
        to_fp32(entry.bytes.data() + ((part.inputs.begin + c) * part.out + rows.begin) * bytes,
                entry.dtype, rows.numel, line.data());
        for (int64_t r = 0; r < rows.numel; ++r) numbers[r * columns + c] = line[r];
    }
    return numbers;
}

}  // namespace

void to_fp32(const std::byte* from, DType dtype, int64_t numel, float* to) {
    if (dtype == DType::kF32) {
        std::memcpy(to, from, static_cast<size_t>(numel) * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < numel; ++i) {
        uint16_t half = 0;
        std::memcpy(&half, from + i * 2, sizeof half);
        to[i] = dtype == DType::kBF16 ? kernels::fp32_of_bf16(half) : kernels::fp32_of_fp16(half);
    }
}

WeightSource::WeightSource(const storage::ModelFolder& folder, const std::string& adapter,
                           std::optional<MatrixForm> form, kernels::ThreadTeam& team)
    : weights_(folder, storage::MapMode::kReadOnly),
      adapter_path_(adapter),
      form_(form),
      team_(team) {
    if (adapter.empty()) return;
    const std::string config_path = fmt::format("{}/{}", adapter, storage::kAdapterConfig);
    const storage::MappedFile config(config_path);
    adapter_config_ = storage::parse_adapter_config(config_path, text_in(config.bytes()));
    const std::string weights_path = fmt::format("{}/{}", adapter, storage::kAdapterWeights);
    adapter_.emplace(weights_path);
    storage::check_adapter_tensors(weights_path, adapter_config_, adapter_->entries());
    for (const SafetensorsEntry& entry : adapter_->entries())
        adapter_tensors_[storage::name_in_model(entry.name)] = {&entry, false};
}

WeightSource::AdapterTensor* WeightSource::adapter_tensor(const std::string& name) {
    const auto found = adapter_tensors_.find(name);
    if (found == adapter_tensors_.end()) return nullptr;
    found->second.taken = true;
    return &found->second;
}

// The adapter's tensor of that name, if it has one, else the folder's.
FolderWeight WeightSource::take(const std::string& name, std::vector<int64_t> sizes) {
    FolderWeight weight = weights_.take(name, sizes);
    const AdapterTensor* instead = adapter_tensor(name);
    if (instead == nullptr) return weight;
    if (instead->entry->shape != sizes)
        fail(ExitCode::kInput, "{}: tensor `{}` is {}, and the model's is {}",
             printable(adapter_path_), printable(instead->entry->name),
             storage::shape_text(instead->entry->shape), storage::shape_text(sizes));
    return {nullptr, *instead->entry};
}

std::vector<float> WeightSource::vector(const std::string& name, std::vector<int64_t> sizes,
                                        Range part) {
    const FolderWeight weight = take(name, std::move(sizes));
    std::vector<float> numbers(static_cast<size_t>(part.numel));
    to_fp32(weight.entry.bytes.data() + part.begin * dtype_bytes(weight.entry.dtype),
            weight.entry.dtype, part.numel, numbers.data());
    return numbers;
}

OwnedMatrix WeightSource::table(const std::string& name, int64_t rows, int64_t columns) {
    const FolderWeight weight = take(name, {rows, columns});
    OwnedMatrix made;
    made.file = weight.file;
    const std::byte* data = weight.entry.bytes.data();
    if (!made.file) {
        made.memory = PageMemory(std::ssize(weight.entry.bytes), "an adapter");
        std::ranges::copy(weight.entry.bytes, made.memory.bytes().begin());
        data = made.memory.bytes().data();
    }
    made.matrix = {kernels::matrix_shape(form_of(weight.entry.dtype), rows, columns), data};
    return made;
}

OwnedMatrix WeightSource::matrix(const MatrixPart& part) {
    const std::vector<int64_t> stored =
        part.transposed ? std::vector{part.in, part.out} : std::vector{part.out, part.in};
    const FolderWeight weight = take(part.name, stored);
    const SafetensorsEntry& entry = weight.entry;
    const MatrixForm form = form_.value_or(form_of(entry.dtype));
    const MatrixShape shape = kernels::matrix_shape(form, part.outputs.numel, part.inputs.numel);
    OwnedMatrix made;
    const bool lies_so = !part.transposed && part.inputs.numel == part.in && weight.file &&
                         form == form_of(entry.dtype) &&
                         is_aligned(entry.bytes.data(), entry.dtype);
    if (lies_so) {
        made.file = weight.file;
        made.matrix = {
            shape, entry.bytes.data() + part.outputs.begin * part.in * dtype_bytes(entry.dtype)};
        return made;
    }
    made.memory = PageMemory(kernels::matrix_bytes(shape), "weights");
    made.matrix = {shape, made.memory.bytes().data()};
    const int64_t panel = kernels::kPanelOutputs;
    const int64_t block = std::max<int64_t>(kBlockNumel / part.inputs.numel / panel * panel, panel);
    for (int64_t begin = 0; begin < shape.out; begin += block) {
        const Range rows{begin, std::min(block, shape.out - begin)};
        const std::vector<float> numbers =
            rows_of(entry, part, {part.outputs.begin + rows.begin, rows.numel});
        if (kernels::is_packed(form)) {
            kernels::quantize(shape, {numbers.data(), DType::kF32, rows}, made.memory.bytes(),
                              team_);
        } else {
            from_fp32(numbers.data(), form, rows.numel * shape.in,
                      made.memory.bytes().data() + begin * shape.in * dtype_bytes(dtype_of(form)));
        }
    }
    // What was rounded to fewer bits is not read again.
    if (weight.file) static_cast<void>(weight.file->release_unwritten(entry.bytes));
    return made;
}

OwnedMatrix WeightSource::fp32_part(const SafetensorsEntry& entry, Range rows, Range columns,
                                    float factor) const {
    const MatrixPart part{entry.name, entry.shape[0], entry.shape[1], false, rows, columns};
    std::vector<float> numbers = rows_of(entry, part, rows);
    for (float& number : numbers) number *= factor;
    const MatrixShape shape = kernels::matrix_shape(MatrixForm::kF32, rows.numel, columns.numel);
    OwnedMatrix made;
    made.memory = PageMemory(kernels::matrix_bytes(shape), "an adapter");
    std::memcpy(made.memory.bytes().data(), numbers.data(), made.memory.bytes().size());
    made.matrix = {shape, made.memory.bytes().data()};
    return made;
}

std::optional<LowRank> WeightSource::low_rank(const MatrixPart& part) {
    if (!part.name.ends_with(".weight")) return std::nullopt;
    const std::string layer = part.name.substr(0, part.name.rfind('.'));
    const AdapterTensor* a = adapter_tensor(fmt::format("{}{}", layer, storage::kAdapterA));
    const AdapterTensor* b = adapter_tensor(fmt::format("{}{}", layer, storage::kAdapterB));
    if (a == nullptr && b == nullptr) return std::nullopt;
    const auto fits = [](const AdapterTensor* tensor, int64_t rows, int64_t columns) {
        return tensor != nullptr && tensor->entry->shape == std::vector{rows, columns};
    };
    const int64_t rank = adapter_config_.r;
    if (!fits(a, rank, part.in) || !fits(b, part.out, rank))
        fail(ExitCode::kInput,
             "{}: lora_A and lora_B of `{}` are not both there as [{}, {}] and [{}, {}], which its "
             "rank and the layer ask for",
             printable(adapter_path_), printable(layer), rank, part.in, part.out, rank);
    return LowRank{
        fp32_part(*a->entry, {0, rank}, part.inputs, 1),
        fp32_part(*b->entry, part.outputs, {0, rank}, static_cast<float>(adapter_config_.scale()))};
}

void WeightSource::require_all_taken() const {
    weights_.require_all_taken();
    for (const auto& [name, tensor] : adapter_tensors_)
        if (!tensor.taken)
            fail(ExitCode::kInput, "{}: tensor `{}` belongs to no layer of the model",
                 printable(adapter_path_), printable(tensor.entry->name));
}

}  // namespace dslaunch::infer
