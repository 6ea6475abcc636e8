#include "storage/gguf_model/gguf_model_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/kinds/half_arrays.h"
#include "base/machine/loop_on_threads.h"
#include "base/path.h"
#include "base/text.h"
#include "storage/gguf/block_numbers.h"
#include "storage/gguf/gguf_file.h"
#include "storage/gguf_model/gguf_config.h"
#include "storage/gguf_model/gguf_tokenizer.h"
#include "storage/huggingface/folder_weights.h"

namespace dslaunch::storage {
namespace {

// The number of elements in a part of a matrix. Parts are converted one after the other, so that a
// large matrix takes little memory.
constexpr int64_t kPartNumel = int64_t{1} << 24;
// The number of rows that a thread converts at once.
constexpr int64_t kRowsOfThread = 16;

// The sums for a tensor's error.
struct ErrorSums {
    double of_numbers = 0;
    double of_differences = 0;
};

// Writes one file.
class ModelWriter {
  public:
    ModelWriter(const ModelFolder& folder, const GgufWriteOptions& options)
        : folder_(folder),
          options_(options),
          family_(gguf_family_of(folder.config, folder.config_path)),
          weights_(gguf_weights(folder.config, family_)),
          forms_(gguf_forms(options.type, folder.config, family_, weights_,
                            static_cast<bool>(options.importance))) {}

    GgufWritten write(const std::string& out) {
        GgufValues values;
        const std::vector<GgufFactors> factors = add_values(values);
        std::vector<GgufTensor> tensors;
        for (size_t i = 0; i < weights_.size(); ++i) {
            tensors.push_back({weights_[i].tensor, forms_[i], weights_[i].file_sizes(), {}});
            total_ += numel_of(weights_[i]);
        }
        for (const GgufFactors& one : factors)
            tensors.push_back({one.tensor, GgufForm::kF32, {std::ssize(one.numbers)}, {}});
        FolderWeights source(folder_, MapMode::kReadOnly);
        GgufWriter writer(out, values, tensors);
        for (size_t i = 0; i < weights_.size(); ++i)
            write_tensor(source, weights_[i], forms_[i], writer);
        source.require_all_taken();
        for (const GgufFactors& one : factors) writer.append(std::as_bytes(std::span(one.numbers)));
        writer.commit();
        for (const std::string& file : folder_.weights)
            written_.bytes_before += static_cast<int64_t>(std::filesystem::file_size(file));
        written_.bytes_after = writer.file_bytes();
        return std::move(written_);
    }

  private:
    static int64_t numel_of(const GgufWeight& weight) {
        int64_t numel = std::ssize(weight.names);
        for (const int64_t size : weight.sizes) numel *= size;
        return numel;
    }

    [[nodiscard]] std::vector<GgufFactors> add_values(GgufValues& values) const {
        const std::string place = folder_of(folder_.config_path);
        values.add("general.architecture", family_.name);
        values.add("general.type", "model");
        const std::filesystem::path path = std::filesystem::absolute(place).lexically_normal();
        const std::string name = (path.has_filename() ? path : path.parent_path()).filename();
        values.add("general.name", std::string_view(printable(name)));
        values.add("general.file_type", static_cast<int64_t>(options_.type));
        values.add("general.quantization_version", int64_t{2});
        std::vector<GgufFactors> factors =
            add_config_values(folder_.config, family_, folder_.config_path, values);
        add_tokenizer_values(place, folder_.config.vocabulary, values);
        return factors;
    }

    // Writes all parts of a tensor: one weight, or several that are stacked.
    void write_tensor(FolderWeights& source, const GgufWeight& weight, GgufForm form,
                      GgufWriter& writer) {
        ErrorSums sums;
        const int64_t in = weight.file_sizes().back();
        for (const std::string& name : weight.names) {
            const FolderWeight found = source.take(name, weight.sizes);
            std::vector<float> importance;
            if (options_.importance && is_quantized(form))
                importance = options_.importance(name, in);
            if (!importance.empty() && std::ssize(importance) != in)
                fail(ExitCode::kInput,
                     "the importance of {} inputs is known for the weight `{}`, but this weight "
                     "has {} inputs",
                     importance.size(), printable(name), in);
            for (const float weight_of_input : importance)
                if (!(weight_of_input >= 0) || !std::isfinite(weight_of_input))
                    fail(ExitCode::kInput,
                         "the importance of an input of `{}` is {}: the model's states are not "
                         "finite on the given rows",
                         printable(name), weight_of_input);
            const auto bytes = static_cast<size_t>(dtype_bytes(found.entry.dtype));
            const int64_t numel = std::ssize(found.entry.bytes) / static_cast<int64_t>(bytes);
            const int64_t part = weight.change == GgufChange::kNone
                                     ? std::max<int64_t>(kPartNumel / in, 1) * in
                                     : numel;
            for (int64_t begin = 0; begin < numel; begin += part) {
                const auto count = static_cast<size_t>(std::min(part, numel - begin));
                std::vector<float> numbers(count);
                to_fp32(found.entry.bytes.data() + static_cast<size_t>(begin) * bytes,
                        found.entry.dtype, std::ssize(numbers), numbers.data());
                require_finite(name, found, numbers);
                change_for_gguf(weight, numbers);
                write_numbers(numbers, in, form, importance, writer, sums);
            }
            if (weight.file_sizes().size() > 1) {
                written_.weights += numel;
                written_.weight_bytes_before += std::ssize(found.entry.bytes);
                written_.weight_bytes_after += gguf_bytes(form, numel);
            }
        }
        if (is_quantized(form))
            written_.losses.push_back(
                {weight.names.front(),
                 sums.of_numbers > 0 ? std::sqrt(sums.of_differences / sums.of_numbers) : 0});
    }

    static void require_finite(const std::string& name, const FolderWeight& found,
                               const std::vector<float>& numbers) {
        if (std::ranges::all_of(numbers, [](float number) { return std::isfinite(number); }))
            return;
        fail(ExitCode::kInput, "{}: the weight `{}` has a number that is not finite",
             found.file ? printable(found.file->path()) : "the folder", printable(name));
    }

    void write_numbers(std::span<const float> numbers, int64_t in, GgufForm form,
                       std::span<const float> importance, GgufWriter& writer, ErrorSums& sums) {
        const int64_t rows = std::ssize(numbers) / in;
        const int64_t row_bytes = gguf_bytes(form, in);
        std::vector<std::byte> out(static_cast<size_t>(rows * row_bytes));
        const auto chunks = static_cast<size_t>((rows + kRowsOfThread - 1) / kRowsOfThread);
        std::mutex mutex;
        loop_on_threads(chunks, options_.threads, [&](size_t chunk) {
            ErrorSums own;
            const auto first = static_cast<int64_t>(chunk) * kRowsOfThread;
            for (int64_t row = first; row < std::min(rows, first + kRowsOfThread); ++row) {
                const auto from =
                    numbers.subspan(static_cast<size_t>(row * in), static_cast<size_t>(in));
                const auto to = std::span(out).subspan(static_cast<size_t>(row * row_bytes),
                                                       static_cast<size_t>(row_bytes));
                gguf_quantize(form, from, importance, to);
                if (is_quantized(form)) add_error(form, from, to, own);
            }
            const std::lock_guard lock(mutex);
            sums.of_numbers += own.of_numbers;
            sums.of_differences += own.of_differences;
        });
        writer.append(out);
        done_ += std::ssize(numbers);
        if (options_.progress) options_.progress(done_, total_);
    }

    static void add_error(GgufForm form, std::span<const float> numbers,
                          std::span<const std::byte> bytes, ErrorSums& sums) {
        std::vector<float> back(numbers.size());
        gguf_dequantize(form, bytes, back);
        for (size_t i = 0; i < back.size(); ++i) {
            const double number = static_cast<double>(numbers[i]);
            const double off = static_cast<double>(back[i]) - number;
            sums.of_numbers += number * number;
            sums.of_differences += off * off;
        }
    }

    const ModelFolder& folder_;
    const GgufWriteOptions& options_;
    const GgufFamily& family_;
    std::vector<GgufWeight> weights_;
    std::vector<GgufForm> forms_;
    GgufWritten written_;
    int64_t done_ = 0, total_ = 0;  // counts of numbers
};

}  // namespace

GgufWritten write_gguf(const ModelFolder& folder, const std::string& out,
                       const GgufWriteOptions& options) {
    require_weights(folder);
    return ModelWriter(folder, options).write(out);
}

}  // namespace dslaunch::storage
