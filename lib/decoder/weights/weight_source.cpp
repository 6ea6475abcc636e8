#include "decoder/weights/weight_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"
#include "base/kinds/half_arrays.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "base/text_bytes.h"

namespace dslaunch::decoder {

using kernels::MatrixForm;
using kernels::MatrixShape;
using storage::FolderWeight;
using storage::LowRankPair;
using storage::SafetensorsEntry;
using storage::WeightChange;

namespace {

// The number of elements in a block: a matrix is made in blocks of rows, so that making it takes
// little memory besides the result.
constexpr int64_t kBlockNumel = int64_t{1} << 22;

MatrixForm form_of(DType dtype) {
    if (dtype == DType::kF32) return MatrixForm::kF32;
    return dtype == DType::kBF16 ? MatrixForm::kBf16 : MatrixForm::kFp16;
}

bool is_aligned(const std::byte* data, DType dtype) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(dtype_bytes(dtype)) == 0;
}

// Returns a block of the stored matrix as fp32: the rows ROWS of the columns PART.inputs. SHAPE:
// [rows.numel, part.inputs.numel].
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

// Returns a block of the matrix NUMBERS: the rows ROWS of the columns PART.inputs.
std::vector<float> cut(const std::vector<float>& numbers, const MatrixPart& part, Range rows) {
    std::vector<float> some;
    some.reserve(static_cast<size_t>(rows.numel * part.inputs.numel));
    for (int64_t r = rows.begin; r < rows.end(); ++r) {
        const float* const begin = numbers.data() + r * part.in + part.inputs.begin;
        some.insert(some.end(), begin, begin + part.inputs.numel);
    }
    return some;
}

bool has_pair(const WeightChange* change) {
    return change != nullptr && change->pair;
}

// Returns true if CHANGE modifies the weight itself. An ordinary low-rank pair does not: it is kept
// as separate matrices.
bool changes_weight(const WeightChange* change) {
    return change != nullptr &&
           (change->magnitude || change->values || change->init != storage::AdapterInit::kNone ||
            (change->pair && change->pair->is_of_table));
}

// Returns the form in which the weight in ENTRY is used after CHANGE. If the adapter contains the
// whole changed weight, the form is fp32, which holds the numbers of any adapter exactly.
MatrixForm own_form(const SafetensorsEntry& entry, const WeightChange* change) {
    const bool is_brought = changes_weight(change) && change->whole;
    return is_brought ? MatrixForm::kF32 : form_of(entry.dtype);
}

// Returns true if the low-rank pair of CHANGE is added to the weight. Otherwise the pair is used as
// two separate matrices.
bool holds_pair(const WeightChange& change) {
    return change.pair && (change.magnitude || change.pair->is_of_table);
}

// Scales each row of NUMBERS to its norm in MAGNITUDES. If BY_ROW is false, does the same to each
// column.
void set_norms(std::vector<float>& numbers, int64_t columns, const std::vector<float>& magnitudes,
               bool by_row) {
    const int64_t rows = std::ssize(numbers) / columns;
    std::vector<double> squares(magnitudes.size());
    const auto line = [&](int64_t r, int64_t c) { return static_cast<size_t>(by_row ? r : c); };
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
            const double number = numbers[static_cast<size_t>(r * columns + c)];
            squares[line(r, c)] += number * number;
        }
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c)
            numbers[static_cast<size_t>(r * columns + c)] *=
                static_cast<float>(magnitudes[line(r, c)] / std::sqrt(squares[line(r, c)]));
}

}  // namespace

WeightSource::WeightSource(const storage::ModelFolder& folder, std::optional<MatrixForm> form,
                           kernels::ThreadTeam& team)
    : weights_(folder, storage::MapMode::kReadOnly),
      stored_(folder.config),
      form_(form),
      team_(team) {}

void WeightSource::adapt(storage::AdapterChanges& adapter,
                         const storage::TransformerConfig& changed, TakeOutBeginning take_out) {
    adapter_ = &adapter;
    changed_ = changed;
    take_out_ = std::move(take_out);
}

const WeightChange* WeightSource::change_of(const std::string& name) {
    return adapter_ == nullptr ? nullptr : adapter_->take(name);
}

void WeightSource::refuse_form(const WeightChange& change, const char* why) const {
    adapter_->refuse(change.pair ? change.pair->name : change.values->name, why);
}

void WeightSource::replace(const std::string& name,
                           std::shared_ptr<const std::vector<std::byte>> numbers,
                           storage::InputRounding inputs) {
    if (!numbers) {
        replaced_.erase(name);
        return;
    }
    replaced_[name] = {std::move(numbers), inputs};
}

storage::InputRounding WeightSource::input_rounding(const std::string& name) {
    if (const auto found = replaced_.find(name); found != replaced_.end())
        return found->second.inputs;
    return stored_.quantization && weights_.is_rounded(name) ? stored_.quantization->inputs
                                                             : storage::InputRounding::kNone;
}

// Returns the tensor NAME from the first source that has it: replace(), the adapter, the folder.
FolderWeight WeightSource::take(const std::string& name, std::vector<int64_t> sizes) {
    if (const auto found = replaced_.find(name); found != replaced_.end()) {
        FolderWeight weight{
            nullptr, {name, stored_.dtype, std::move(sizes), {}}, found->second.numbers};
        weight.entry.bytes = *weight.made;
        return weight;
    }
    if (adapter_ == nullptr) return weights_.take(name, sizes);
    const std::string table = storage::table_of(stored_) + ".weight";
    const bool is_head = name == storage::head_of(stored_) + ".weight";
    std::vector<int64_t> there = sizes;
    if (is_head || name == table) there[0] = stored_.vocabulary;
    // If the folder's output layer shares its weight with the embedding table, it starts with the
    // table's values.
    FolderWeight weight = weights_.take(is_head && stored_.is_tied ? table : name, there);
    const WeightChange* const change = change_of(name);
    if (change == nullptr || !change->whole) return weight;
    if (change->whole->shape != sizes)
        adapter_->refuse(change->whole->name,
                         fmt::format("has shape {}, but the model's has {}",
                                     shape_text(change->whole->shape), shape_text(sizes)));
    FolderWeight whole;
    whole.entry = *change->whole;
    return whole;
}

std::vector<float> WeightSource::vector(const std::string& name, std::vector<int64_t> sizes,
                                        Range part) {
    const FolderWeight weight = take(name, std::move(sizes));
    if (const WeightChange* change = change_of(name); changes_weight(change) || has_pair(change))
        refuse_form(*change, "changes a weight that is not a matrix");
    std::vector<float> numbers(static_cast<size_t>(part.numel));
    to_fp32(weight.entry.bytes.data() + part.begin * dtype_bytes(weight.entry.dtype),
            weight.entry.dtype, part.numel, numbers.data());
    return numbers;
}

// Adds scale * B A, the product of PAIR, to NUMBERS, [pair.out(), pair.in()].
void WeightSource::add_pair(const LowRankPair& pair, std::vector<float>& numbers) const {
    const std::vector<float> a = pair.read_a(), b = pair.read_b();
    const int64_t in = pair.in();
    constexpr int64_t kRows = 64;
    team_.for_chunks((pair.out() + kRows - 1) / kRows, [&](int64_t chunk) {
        const int64_t end = std::min(pair.out(), (chunk + 1) * kRows);
        for (int64_t row = chunk * kRows; row < end; ++row)
            for (int64_t k = 0; k < pair.r; ++k) {
                const float factor =
                    b[static_cast<size_t>(row * pair.r + k)] * static_cast<float>(pair.scale);
                float* const to = numbers.data() + row * in;
                const float* const from = a.data() + k * in;
                for (int64_t c = 0; c < in; ++c) to[c] += factor * from[c];
            }
    });
}

std::vector<float> WeightSource::changed(const SafetensorsEntry& entry, const MatrixPart& part,
                                         const WeightChange& change) const {
    MatrixPart all = part;
    all.outputs = {0, part.out};
    all.inputs = {0, part.in};
    std::vector<float> numbers = rows_of(entry, all, all.outputs);
    if (change.pair && (change.pair->out() != part.out || change.pair->in() != part.in))
        adapter_->refuse(change.pair->name,
                         fmt::format("is for a layer [{}, {}], but the model's layer is [{}, {}]",
                                     change.pair->out(), change.pair->in(), part.out, part.in));
    if (change.init != storage::AdapterInit::kNone) {
        take_out_(numbers, change, part.transposed);
        // The training run subtracted the same numbers and rounded the result to the weight's type.
        std::vector<std::byte> stored(numbers.size() *
                                      static_cast<size_t>(dtype_bytes(entry.dtype)));
        from_fp32(numbers.data(), entry.dtype, std::ssize(numbers), stored.data());
        to_fp32(stored.data(), entry.dtype, std::ssize(numbers), numbers.data());
    }
    if (change.values) {
        if (change.values->shape[1] != part.in ||
            std::ranges::any_of(change.rows, [&](int64_t row) { return row >= part.out; }))
            adapter_->refuse(
                change.values->name,
                fmt::format("has rows that do not fit the embedding [{}, {}]", part.out, part.in));
        const std::vector<float> values = storage::fp32_numbers(*change.values);
        for (size_t i = 0; i < change.rows.size(); ++i)
            std::copy_n(values.data() + static_cast<int64_t>(i) * part.in, part.in,
                        numbers.data() + change.rows[i] * part.in);
    }
    if (holds_pair(change)) add_pair(*change.pair, numbers);
    if (change.magnitude)
        set_norms(numbers, part.in, storage::fp32_numbers(*change.magnitude),
                  !change.pair->is_of_table);
    return numbers;
}

OwnedMatrix WeightSource::table(const std::string& name, int64_t rows, int64_t columns) {
    const FolderWeight weight = take(name, {rows, columns});
    const WeightChange* const change = change_of(name);
    if (has_pair(change) && !holds_pair(*change))
        refuse_form(*change,
                    "is the lora_A or lora_B of a linear layer, but the weight is an embedding");
    const MatrixForm form = own_form(weight.entry, change);
    OwnedMatrix made;
    made.file = weight.file;
    const std::byte* data = weight.entry.bytes.data();
    if (changes_weight(change) || !made.file) {
        made.file = nullptr;
        made.memory = PageMemory(kernels::matrix_bytes(kernels::matrix_shape(form, rows, columns)),
                                 changes_weight(change) ? "an adapter" : "weights");
        data = made.memory.bytes().data();
        if (changes_weight(change)) {
            const MatrixPart all{name, rows, columns, false, {0, rows}, {0, columns}};
            const std::vector<float> numbers = changed(weight.entry, all, *change);
            from_fp32(numbers.data(), kernels::dtype_of(form), std::ssize(numbers),
                      made.memory.bytes().data());
        } else {
            std::ranges::copy(weight.entry.bytes, made.memory.bytes().begin());
        }
    }
    made.matrix = {kernels::matrix_shape(form, rows, columns), data};
    return made;
}

OwnedMatrix WeightSource::matrix(const MatrixPart& part) {
    const std::vector<int64_t> stored =
        part.transposed ? std::vector{part.in, part.out} : std::vector{part.out, part.in};
    const FolderWeight weight = take(part.name, stored);
    const SafetensorsEntry& entry = weight.entry;
    const WeightChange* const change = change_of(part.name);
    const MatrixForm form = form_.value_or(own_form(entry, change));
    const MatrixShape shape = kernels::matrix_shape(form, part.outputs.numel, part.inputs.numel);
    const std::vector<float> all =
        changes_weight(change) ? changed(entry, part, *change) : std::vector<float>();
    OwnedMatrix made;
    const bool lies_so = all.empty() && !part.transposed && part.inputs.numel == part.in &&
                         weight.file && form == form_of(entry.dtype) &&
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
        const Range own{part.outputs.begin + rows.begin, rows.numel};
        const std::vector<float> numbers =
            all.empty() ? rows_of(entry, part, own) : cut(all, part, own);
        if (kernels::is_packed(form)) {
            kernels::quantize(shape, {numbers.data(), DType::kF32, rows}, made.memory.bytes(),
                              team_);
        } else {
            const DType dtype = kernels::dtype_of(form);
            from_fp32(numbers.data(), dtype, rows.numel * shape.in,
                      made.memory.bytes().data() + begin * shape.in * dtype_bytes(dtype));
        }
    }
    // Releases the memory pages of the weight in the mapped file, because they are not read again.
    if (weight.file) static_cast<void>(weight.file->release_unwritten(entry.bytes));
    return made;
}

OwnedMatrix WeightSource::fp32_matrix(const std::vector<float>& numbers, int64_t rows) const {
    const MatrixShape shape =
        kernels::matrix_shape(MatrixForm::kF32, rows, std::ssize(numbers) / rows);
    OwnedMatrix made;
    made.memory = PageMemory(kernels::matrix_bytes(shape), "an adapter");
    std::memcpy(made.memory.bytes().data(), numbers.data(), made.memory.bytes().size());
    made.matrix = {shape, made.memory.bytes().data()};
    return made;
}

std::optional<LowRank> WeightSource::low_rank(const MatrixPart& part) {
    const WeightChange* const change = change_of(part.name);
    if (change == nullptr || !change->pair || holds_pair(*change)) return std::nullopt;
    const LowRankPair& pair = *change->pair;
    if (pair.in() != part.in || pair.out() != part.out)
        adapter_->refuse(pair.name, fmt::format("and the matching lora_A or lora_B are for a layer "
                                                "[{}, {}], but the model's layer is [{}, {}]",
                                                pair.out(), pair.in(), part.out, part.in));
    std::vector<float> b = pair.read_b();
    for (float& number : b) number *= static_cast<float>(pair.scale);
    const MatrixPart of_a{part.name, pair.r, part.in, false, {0, pair.r}, part.inputs};
    const MatrixPart of_b{part.name, part.out, pair.r, false, part.outputs, {0, pair.r}};
    return LowRank{fp32_matrix(cut(pair.read_a(), of_a, of_a.outputs), pair.r),
                   fp32_matrix(cut(b, of_b, of_b.outputs), part.outputs.numel)};
}

void WeightSource::add_to_bias(const std::string& name, int64_t numel, Range part,
                               std::vector<float>& bias) {
    const WeightChange* const change = change_of(name);
    if (change == nullptr || !change->added) return;
    const std::vector<float> added = storage::fp32_numbers(*change->added);
    if (std::ssize(added) != numel)
        adapter_->refuse(
            change->added->name,
            fmt::format("has {} numbers, but the layer has {} outputs", added.size(), numel));
    bias.resize(static_cast<size_t>(part.numel));
    for (int64_t i = 0; i < part.numel; ++i)
        bias[static_cast<size_t>(i)] +=
            static_cast<float>(change->scale) * added[static_cast<size_t>(part.begin + i)];
}

void WeightSource::require_all_taken() const {
    weights_.require_all_taken();
    if (adapter_ == nullptr) return;
    // If the output layer shares the table of tokens, the table's change applies to both. The
    // adapter's change for the output layer is then not used, but is no error.
    if (changed_.is_tied) static_cast<void>(adapter_->take(storage::head_of(changed_)));
    adapter_->require_all_taken();
}

}  // namespace dslaunch::decoder
