#include "compress/compressed_folder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/kinds/half_arrays.h"
#include "base/log.h"
#include "base/text.h"
#include "compress/compensation.h"
#include "compress/input_moments.h"
#include "compress/layer_files.h"
#include "compress/layer_walk.h"
#include "compress/memory_plan.h"
#include "decoder/weights/decoder_weights.h"
#include "storage/export/weight_export.h"
#include "storage/files/atomic_file.h"
#include "storage/huggingface/folder_files.h"
#include "storage/huggingface/folder_weights.h"
#include "storage/quantized/quantized_weight.h"

namespace dslaunch::compress {
namespace {

namespace fs = std::filesystem;
using decoder::LinearWeights;
using storage::SafetensorsEntry;

constexpr std::string_view kWeight = ".weight";
constexpr const char* kConfig = "config.json";
constexpr size_t kTextBytesMax = size_t{1} << 30;

// Returns NAME, "…up_proj.weight", without its ending.
std::string module_of(const std::string& name) {
    return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

std::vector<std::byte> as_stored(const std::vector<float>& numbers, DType dtype) {
    std::vector<std::byte> bytes(numbers.size() * static_cast<size_t>(dtype_bytes(dtype)));
    from_fp32(numbers.data(), dtype, std::ssize(numbers), bytes.data());
    return bytes;
}

double weight_error(std::span<const float> exact, std::span<const float> rounded) {
    double error = 0, whole = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
        const double difference = static_cast<double>(exact[i]) - rounded[i];
        error += difference * difference;
        whole += static_cast<double>(exact[i]) * exact[i];
    }
    return whole > 0 ? std::sqrt(error / whole) : 0;
}

// A weight of a layer that is to be rounded.
struct Target {
    std::string name;               // in the decoder's modules
    const SafetensorsEntry* entry;  // in the folder
    int64_t input;                  // number of its input in the layer
};

// The results of a layer.
struct RoundedLayer {
    std::vector<PackedTensor> tensors;
    WeightErrors errors;
    // The rounded weights, in the order of the targets. The calibration texts go through the layer
    // with these weights. Empty if there are no texts.
    std::vector<std::shared_ptr<const std::vector<std::byte>>> numbers;
    std::vector<DescentWeight> beginnings;  // of a descent, in the order of the targets
};

// Reports the weights of a layer through which few tokens passed.
class FewRows {
  public:
    // Notes that ROWS tokens passed through the weight NAME, which has IN inputs. If they are too
    // few to compensate errors, the weight is rounded to nearest, and warn() lists it. If they are
    // fewer than its inputs, warns once.
    void note(const std::string& name, int64_t in, int64_t rows) {
        if (!are_enough_rows(in, rows)) {
            to_nearest_.push_back(name);
        } else if (rows < in && !has_warned_) {
            has_warned_ = true;
            log_warn("compress",
                     "only {} of the calibration rows reach {}, which has {} inputs, so its "
                     "rounding errors are compensated less well; other layers may have the same "
                     "problem. More rows (--calibrate, --calibration-rows) reduce the errors",
                     counted(rows, "token"), name, in);
        }
    }

    // Warns of the weights of LAYER that are rounded to nearest, and begins the next layer.
    void warn(int64_t layer) {
        if (!to_nearest_.empty())
            log_warn("compress",
                     "layer {}: too few calibration tokens reach {} (the first: {}): fewer than a "
                     "sixteenth of the number of inputs. Each such weight is rounded to nearest, "
                     "without compensation",
                     layer, counted(std::ssize(to_nearest_), "weight"), to_nearest_.front());
        to_nearest_.clear();
    }

  private:
    std::vector<std::string> to_nearest_;  // weights of this layer
    bool has_warned_ = false;
};

class FolderCompressor {
  public:
    FolderCompressor(const FolderTask& task, kernels::ThreadTeam& team)
        : task_(task),
          out_(out_of(task)),
          options_(options_text(task)),
          config_(task.folder->config),
          team_(team),
          source_(*task.folder, std::nullopt, team),
          files_(partial_of(task), options_),
          walks_(config_, source_, task.frequencies, task.texts, task.layer_function != nullptr,
                 team) {}

    // Removes the folder of finished layers if it is empty, because the task was refused.
    ~FolderCompressor() {
        std::error_code ignored;
        std::filesystem::remove(partial_of(task_), ignored);  // fails if it has files
    }
    FolderCompressor(const FolderCompressor&) = delete;
    FolderCompressor& operator=(const FolderCompressor&) = delete;

    FolderResult run() {
        result_.bytes_before = bytes_of_folder();
        std::vector<std::vector<Target>> targets;
        for (int64_t layer = 0; layer < std::ssize(config_.layers); ++layer)
            targets.push_back(targets_of(layer));
        source_.require_all_taken();
        note_ungrouped();
        plan(targets);
        for (int64_t layer = 0; layer < std::ssize(config_.layers); ++layer)
            run_layer(layer, targets[static_cast<size_t>(layer)]);
        require_unchanged();
        write_files();
        storage::copy_files_beside_config(task_.from, out_);
        require_unchanged();
        write_config();
        files_.remove();
        return std::move(result_);
    }

  private:
    int64_t bytes_of_folder() const {
        int64_t bytes = 0;
        for (const std::string& path : task_.folder->weights) {
            const storage::SafetensorsFile file(path);
            for (const SafetensorsEntry& entry : file.entries()) bytes += std::ssize(entry.bytes);
        }
        return bytes;
    }

    // Returns the weights of LAYER that are rounded. A weight that is used twice is listed once.
    std::vector<Target> targets_of(int64_t layer) {
        const decoder::DecoderWeights weights =
            load_decoder(config_, {layer, layer + 1, 0, 1}, source_);
        std::vector<Target> targets;
        std::set<std::string> seen;
        int64_t input = 0;
        for (const LayersOfInput& parts : rounded_layers(weights.layers.front())) {
            for (const LinearWeights* const part : parts)
                if (seen.insert(part->name).second)
                    targets.push_back({part->name, entry_of(part->name), input});
            ++input;
        }
        for (const Target& target : targets) {
            const SafetensorsEntry& entry = *target.entry;
            result_.weights += entry.shape[0] * entry.shape[1];
            result_.weight_bytes_before += std::ssize(entry.bytes);
            groups_[group_of(entry)].push_back(module_of(target.name));
            layer_of_[entry.name] = layer;
        }
        return targets;
    }

    const SafetensorsEntry* entry_of(const std::string& name) {
        const SafetensorsEntry* const entry = source_.weights().stored(name);
        if (entry == nullptr || entry->shape.size() != 2)
            fail(ExitCode::kInput,
                 "{}: the weight `{}` is not stored as one matrix, and cannot be rounded",
                 task_.from, printable(name));
        return entry;
    }

    static LayerSizes sizes_of(const std::vector<Target>& targets) {
        LayerSizes sizes;
        for (const Target& target : targets)
            sizes.push_back(
                {target.name, target.entry->shape[0], target.entry->shape[1], target.input});
        return sizes;
    }

    // Plans the memory, and logs how much is needed.
    void plan(const std::vector<std::vector<Target>>& layers) {
        std::vector<LayerSizes> sizes;
        for (const std::vector<Target>& targets : layers) sizes.push_back(sizes_of(targets));
        plan_ = plan_memory(config_, sizes, walks_.size(), task_.memory);
        const MemoryNeed& need = plan_.need;
        log_info("compress",
                 "the model has {}, the largest with {} of weights; compressing it needs about {} "
                 "of memory{}{}",
                 counted(std::ssize(layers), "layer"), to_text(plan_.largest_layer),
                 to_text(need.total()),
                 walks_.has_texts() ? fmt::format(" (texts {}, statistics of inputs {})",
                                                  to_text(need.texts), to_text(need.moments))
                                    : "",
                 task_.memory ? fmt::format("; {} is free ({})", to_text(task_.memory->left),
                                            task_.memory->name)
                              : "");
        if (plan_.passes > 1)
            log_warn("compress",
                     "the statistics of all inputs of a layer do not fit in memory at once: the "
                     "calibration texts pass through each layer up to {} times, which takes longer",
                     plan_.passes);
    }

    int64_t group_of(const SafetensorsEntry& entry) const {
        return fitting_group(task_.form.rounding.group, entry.shape[1]);
    }

    // Finds layers whose inputs cannot be divided into groups of the wanted size. Throws if the
    // task requires groups; else warns that each row of these layers gets one scale.
    void note_ungrouped() const {
        const auto found = groups_.find(0);
        if (task_.form.rounding.group == 0 || found == groups_.end()) return;
        const std::string first = printable(found->second.front());
        if (task_.requires_groups)
            fail(ExitCode::kInput,
                 "--group {}: the inputs of `{}` cannot be divided evenly into groups of this "
                 "size, or of its half, quarter, … down to 8: give another size, or 0 for one "
                 "scale per row",
                 task_.form.rounding.group, first);
        log_warn("compress",
                 "the inputs of {} (the first: {}) cannot be divided evenly into groups of {}, or "
                 "of its half, quarter, … down to 8: each row there gets one scale",
                 counted(std::ssize(found->second), "layer"), first, task_.form.rounding.group);
    }

    // Throws if a file of the model was replaced since this run began: embeddings
    // and norms are copied from the files when the layers are finished.
    void require_unchanged() const {
        if (options_text(task_) != options_)
            fail(ExitCode::kInput,
                 "{}: the model changed while it was compressed: run the command again when "
                 "nothing writes to that folder",
                 printable(task_.from));
    }

    void run_layer(int64_t layer, const std::vector<Target>& targets) {
        // After the last layer nobody needs the texts.
        const bool goes_on = walks_.has_texts() && layer + 1 < std::ssize(config_.layers);
        // The weights that SOURCE has now are the exact ones.
        walks_.pass_exact();
        if (const std::optional<WeightErrors> errors = files_.finished(layer)) {
            ++result_.layers_kept;
            add_errors(*errors);
            if (goes_on) use_finished(layer, targets);
        } else {
            compress_layer(layer, targets);
        }
        if (goes_on) walks_.pass_rounded();
        for (const Target& target : targets)
            source_.replace(target.name, nullptr, task_.form.inputs);
        if (task_.progress) task_.progress(layer + 1);
    }

    void add_errors(const WeightErrors& errors) {
        result_.errors.insert(result_.errors.end(), errors.begin(), errors.end());
    }

    void compress_layer(int64_t layer, const std::vector<Target>& targets) {
        RoundedLayer made;
        for (const Range& portion : portions_of(sizes_of(targets), plan_.moments_max))
            round_portion(std::span(targets).subspan(static_cast<size_t>(portion.begin),
                                                     static_cast<size_t>(portion.numel)),
                          made);
        if (walks_.descends()) descend_layer(layer, targets, made);
        // Replaces the weights only now: while any portion is observed, the whole layer must have
        // its exact weights.
        for (size_t i = 0; i < made.numbers.size(); ++i)
            source_.replace(targets[i].name, std::move(made.numbers[i]), task_.form.inputs);
        few_rows_.warn(layer);
        files_.write(layer, made.tensors, made.errors);
        add_errors(made.errors);
    }

    // Rounds TARGETS, a portion of the next layer whose moments are in memory together.
    void round_portion(std::span<const Target> targets, RoundedLayer& made) {
        std::set<std::string> names;
        for (const Target& target : targets) names.insert(target.name);
        LayerMoments moments = walks_.observe(names);
        // `inputs` is the order for the moments in `last`. Weights with the same input follow each
        // other in TARGETS, so the order is computed once for all of them.
        std::shared_ptr<InputMoments> last;
        std::vector<float> mean;
        InputOrder inputs;
        for (const Target& target : targets) {
            const std::vector<float> numbers = numbers_of_target(target);
            RoundingForm form = task_.form.rounding;
            form.group = group_of(*target.entry);
            const int64_t out = target.entry->shape[0], in = target.entry->shape[1];
            std::shared_ptr<InputMoments> own;
            // Takes the moments out of the map, so that they are freed after the last weight that
            // uses them.
            if (auto node = moments.extract(target.name)) own = std::move(node.mapped());
            const int64_t rows = own == nullptr ? 0 : own->rows();
            const bool compensates = are_enough_rows(in, rows);
            if (compensates && own != last) {
                last = own;
                mean = last->mean();
                require_finite_inputs(target, mean);
                inputs = order_inputs(mean, in, damping_of(in, rows), team_);
            }
            if (walks_.has_texts()) few_rows_.note(target.entry->name, in, rows);
            if (walks_.descends()) {
                made.beginnings.push_back(
                    descent_weight(form, numbers, out, compensates ? &inputs : nullptr, team_));
                continue;
            }
            const RoundedMatrix rounded =
                compensates ? round_with_compensation(form, numbers, out, inputs, team_)
                            : round_to_nearest(form, numbers, out, team_);
            const std::vector<float> values = compress::numbers_of(rounded, team_);
            made.errors.push_back({target.entry->name,
                                   compensates ? output_error(numbers, values, mean, in, team_)
                                               : weight_error(numbers, values),
                                   compensates});
            require_finite_error(made.errors.back());
            add_rounded(target, rounded, values, made);
        }
    }

    void add_rounded(const Target& target, const RoundedMatrix& rounded,
                     const std::vector<float>& values, RoundedLayer& made) const {
        for (PackedTensor& tensor :
             packed_tensors(task_.form, module_of(target.entry->name), rounded))
            made.tensors.push_back(std::move(tensor));
        if (walks_.has_texts())
            made.numbers.push_back(
                std::make_shared<const std::vector<std::byte>>(as_stored(values, config_.dtype)));
    }

    // Rounds the weights of LAYER by a descent that starts with MADE.beginnings.
    void descend_layer(int64_t layer, const std::vector<Target>& targets, RoundedLayer& made) {
        std::vector<std::string> names;
        for (const Target& target : targets) names.push_back(target.name);
        const std::unique_ptr<LayerFunction> function =
            task_.layer_function(layer, names, source_.weights());
        const DescentResult result = descend(*function, std::move(made.beginnings),
                                             walks_.texts_of_layer(), task_.descent, team_);
        for (size_t i = 0; i < targets.size(); ++i)
            add_rounded(targets[i], result.weights[i],
                        compress::numbers_of(result.weights[i], team_), made);
        made.errors.push_back({fmt::format("{}.{}.{}", config_.names.at("decoder"),
                                           config_.names.at("layers"), layer),
                               result.after, true});
        require_finite_error(made.errors.back());
        log_info("compress",
                 "layer {}: the descent lowered the error of the outputs from {:.2f} "
                 "% to {:.2f} %",
                 layer, 100 * result.before, 100 * result.after);
    }

    void require_finite_inputs(const Target& target, const std::vector<float>& mean) const {
        const int64_t in = target.entry->shape[1];
        for (int64_t i = 0; i < in; ++i)
            if (!std::isfinite(mean[static_cast<size_t>(i * (in + 1))]))
                fail(ExitCode::kInput,
                     "{}: the inputs of `{}` contain NaN or infinity for the calibration rows: an "
                     "earlier norm, bias or embedding of the model is damaged, or the training "
                     "diverged",
                     task_.from, printable(target.entry->name));
    }

    void require_finite_error(const WeightError& error) const {
        if (!std::isfinite(error.error))
            fail(ExitCode::kInput,
                 "{}: tensor `{}` has numbers that are too large for scales of 16 bits: the folder "
                 "is damaged, or its training diverged",
                 task_.from, printable(error.name));
    }

    std::vector<float> numbers_of_target(const Target& target) {
        const storage::FolderWeight weight =
            source_.weights().take(target.name, target.entry->shape);
        std::vector<float> numbers(
            static_cast<size_t>(target.entry->shape[0] * target.entry->shape[1]));
        to_fp32(weight.entry.bytes.data(), weight.entry.dtype, std::ssize(numbers), numbers.data());
        for (const float number : numbers)
            if (!std::isfinite(number))
                fail(ExitCode::kInput,
                     "{}: tensor `{}` contains NaN or infinity, which cannot be rounded: the "
                     "folder is damaged, or its training diverged",
                     task_.from, printable(target.entry->name));
        return numbers;
    }

    // Loads the rounded weights of a layer that an earlier run has finished, so that the texts go
    // through the layer with these weights.
    void use_finished(int64_t layer, const std::vector<Target>& targets) {
        const std::string path = files_.path(layer);
        const auto file = std::make_shared<const storage::MappedFile>(path);
        storage::Quantization how;
        how.inputs = task_.form.inputs;
        std::map<std::string, storage::QuantizedParts> parts;
        for (SafetensorsEntry& entry : storage::parse_safetensors(path, file->bytes()).entries) {
            const size_t dot = entry.name.rfind('.');
            const std::string module = entry.name.substr(0, dot);
            const std::string suffix = entry.name.substr(dot + 1);
            parts[module].emplace(suffix, storage::QuantizedPart{file, std::move(entry)});
        }
        for (const Target& target : targets) {
            const RoundingForm& form = task_.form.rounding;
            how.schemes = {{form.bits, form.is_float, !form.has_minimum, group_of(*target.entry)}};
            const std::string module = module_of(target.entry->name);
            const storage::QuantizedWeight weight(how, module, std::move(parts[module]));
            std::vector<float> numbers(
                static_cast<size_t>(target.entry->shape[0] * target.entry->shape[1]));
            for (int64_t row = 0; row < target.entry->shape[0]; ++row)
                weight.read_row(row, std::span(numbers).subspan(
                                         static_cast<size_t>(row * target.entry->shape[1]),
                                         static_cast<size_t>(target.entry->shape[1])));
            source_.replace(
                target.name,
                std::make_shared<const std::vector<std::byte>>(as_stored(numbers, config_.dtype)),
                task_.form.inputs);
        }
    }

    // Writes the weight files of the folder. Each file has the name of an original file and
    // contains that file's tensors, rounded or copied. OUT has no config.json until all other files
    // are complete.
    void write_files() {
        storage::make_folder(out_);
        std::error_code missing;
        fs::remove(fmt::format("{}/{}", out_, kConfig), missing);
        std::map<std::string, std::string> file_of;
        for (const std::string& path : task_.folder->weights) {
            const std::string name =
                fs::path(path).lexically_relative(fs::path(task_.from)).generic_string();
            const std::string to = fmt::format("{}/{}", out_, name);
            if (fs::path(to).has_parent_path())
                storage::make_folder(fs::path(to).parent_path().string());
            write_file(path, to, name, file_of);
        }
        if (task_.folder->index_path.empty()) return;
        storage::write_weight_index(fmt::format("{}/{}", out_, storage::kWeightIndex),
                                    Bytes{result_.bytes_after}, file_of);
    }

    void write_file(const std::string& from, const std::string& to, const std::string& name,
                    std::map<std::string, std::string>& file_of) {
        const storage::SafetensorsFile original(from);
        std::vector<SafetensorsEntry> entries;
        std::map<int64_t, std::unique_ptr<storage::SafetensorsFile>> layers;
        for (const SafetensorsEntry& entry : original.entries()) {
            const auto layer = layer_of_.find(entry.name);
            if (layer == layer_of_.end()) {
                entries.push_back(entry);
                ignore(entry);
                continue;
            }
            auto& file = layers[layer->second];
            if (file == nullptr)
                file = std::make_unique<storage::SafetensorsFile>(files_.path(layer->second));
            const std::string module = module_of(entry.name) + ".";
            for (const SafetensorsEntry& part : file->entries())
                if (part.name.starts_with(module)) {
                    entries.push_back(part);
                    result_.weight_bytes_after += std::ssize(part.bytes);
                }
        }
        storage::SafetensorsWriter writer(to, entries, {{"format", "pt"}});
        for (size_t i = 0; i < entries.size(); ++i) {
            writer.write(i, entries[i].bytes);
            file_of[entries[i].name] = name;
            result_.bytes_after += std::ssize(entries[i].bytes);
        }
        writer.commit();
    }

    // Notes ENTRY as a module that is not rounded, if it is the weight of a linear layer.
    void ignore(const SafetensorsEntry& entry) {
        const bool is_embedding = entry.name.ends_with(config_.names.at("embed") + ".weight");
        if (entry.shape.size() == 2 && entry.name.ends_with(kWeight) && !is_embedding)
            ignored_.insert(module_in_decoder(entry.name));
    }

    // Returns the module of the weight NAME. Some folders contain the decoder without the model
    // around it; this function then adds the decoder's name.
    std::string module_in_decoder(const std::string& name) const {
        const std::string decoder = config_.names.at("decoder") + ".";
        const bool is_whole = name.starts_with(decoder) || name == storage::head_name(config_);
        return module_of(is_whole ? name : decoder + name);
    }

    void write_config() {
        auto json = nlohmann::ordered_json::parse(storage::config_for_weights(
            task_.from, read_file(fmt::format("{}/{}", task_.from, kConfig), kTextBytesMax)));
        ignored_.insert(config_.names.at("head"));  // also if it shares the embedding's weight
        json["quantization_config"] =
            quantization_config(task_.form, groups_, {ignored_.begin(), ignored_.end()});
        storage::write_atomically(fmt::format("{}/{}", out_, kConfig), json.dump(2) + "\n");
    }

    const FolderTask& task_;
    const std::string out_;      // without slashes at its end
    const std::string options_;  // options_text() before the files were mapped
    const storage::TransformerConfig& config_;
    kernels::ThreadTeam& team_;
    decoder::WeightSource source_;
    LayerFiles files_;
    CalibrationWalks walks_;
    MemoryPlan plan_;
    FolderResult result_;
    std::map<int64_t, std::vector<std::string>> groups_;  // modules by the size of their groups
    std::map<std::string, int64_t> layer_of_;             // of each rounded tensor of the folder
    std::set<std::string> ignored_;                       // modules that keep their numbers
    FewRows few_rows_;
};

}  // namespace

FolderResult compress_folder(const FolderTask& task, kernels::ThreadTeam& team) {
    require_compressible(task);
    return FolderCompressor(task, team).run();
}

}  // namespace dslaunch::compress
