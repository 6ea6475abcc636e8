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
#include "base/half_bits.h"
#include "base/log.h"
#include "base/text.h"
#include "compress/compensation.h"
#include "compress/input_moments.h"
#include "compress/layer_files.h"
#include "compress/layer_walk.h"
#include "decoder/weights/decoder_weights.h"
#include "storage/disk/output_place.h"
#include "storage/export/weight_export.h"
#include "storage/files/atomic_file.h"
#include "storage/files/hash128.h"
#include "storage/huggingface/folder_weights.h"
#include "storage/quantized/quantized_weight.h"

namespace dslaunch::compress {
namespace {

namespace fs = std::filesystem;
using decoder::LinearWeights;
using storage::SafetensorsEntry;

// Added to the moments' diagonal, as a part of it: the authors of GPTQ add as much of its mean.
constexpr double kDamping = 0.01;

constexpr std::string_view kWeight = ".weight";

// Returns NAME, "…up_proj.weight", without its ending.
std::string module_of(const std::string& name) {
    return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

std::vector<std::byte> as_stored(const std::vector<float>& numbers, DType dtype) {
    std::vector<std::byte> bytes(numbers.size() * static_cast<size_t>(dtype_bytes(dtype)));
    decoder::from_fp32(numbers.data(), dtype, std::ssize(numbers), bytes.data());
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

// Returns a text that differs if another run would write other bytes.
std::string options_text(const FolderTask& task) {
    const RoundingForm& form = task.form.rounding;
    std::string text =
        fmt::format("1 {} {} {} {} {} {}", task.form.name, form.bits, form.has_minimum, form.group,
                    form.searches, static_cast<int>(form.scale));
    for (const std::string& file : task.folder->files()) {
        std::error_code unreadable;
        text +=
            fmt::format(" {} {} {}", fs::absolute(file).string(), fs::file_size(file, unreadable),
                        fs::last_write_time(file, unreadable).time_since_epoch().count());
    }
    for (const std::vector<int32_t>& tokens : task.texts) {
        const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()),
                                     tokens.size() * sizeof(int32_t));
        text += fmt::format(" {}", hash_text(storage::hash_of(bytes)));
    }
    return hash_text(storage::hash_of(text));
}

// A weight of a layer that is to be rounded.
struct Target {
    std::string name;               // in the decoder's modules
    const SafetensorsEntry* entry;  // in the folder
};

class FolderCompressor {
  public:
    FolderCompressor(const FolderTask& task, kernels::ThreadTeam& team)
        : task_(task),
          config_(task.folder->config),
          team_(team),
          source_(*task.folder, std::nullopt, team),
          files_(task.out + ".partial", options_text(task)) {
        if (!task.texts.empty())
            walk_.emplace(config_, source_, task.frequencies, task.texts, team);
    }

    FolderResult run() {
        result_.bytes_before = bytes_of_folder();
        for (int64_t layer = 0; layer < std::ssize(config_.layers); ++layer) {
            const std::vector<Target> targets = targets_of(layer);
            if (const std::optional<WeightErrors> errors = files_.finished(layer)) {
                ++result_.layers_kept;
                add_errors(*errors);
                if (walk_) use_finished(layer, targets);
            } else {
                compress_layer(layer, targets);
            }
            if (walk_) walk_->advance();
            for (const Target& target : targets)
                source_.replace(target.name, nullptr, task_.form.inputs);
            if (task_.progress) task_.progress(layer + 1);
        }
        write_files();
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

    // Returns the weights of LAYER that are rounded, each once.
    std::vector<Target> targets_of(int64_t layer) {
        const decoder::DecoderWeights weights =
            load_decoder(config_, {layer, layer + 1, 0, 1}, source_);
        std::vector<Target> targets;
        std::set<std::string> seen;
        for (const LinearWeights* const part : rounded_layers(weights.layers.front())) {
            if (!seen.insert(part->name).second) continue;
            const SafetensorsEntry* const entry = source_.weights().stored(part->name);
            if (entry == nullptr || entry->shape.size() != 2) continue;
            targets.push_back({part->name, entry});
            result_.weights += entry->shape[0] * entry->shape[1];
            result_.weight_bytes_before += std::ssize(entry->bytes);
            const std::string module = module_of(entry->name);
            groups_[group_of(*entry)].push_back(module);
            layer_of_[entry->name] = layer;
        }
        return targets;
    }

    int64_t group_of(const SafetensorsEntry& entry) const {
        return fitting_group(task_.form.rounding.group, entry.shape[1]);
    }

    void add_errors(const WeightErrors& errors) {
        result_.errors.insert(result_.errors.end(), errors.begin(), errors.end());
    }

    void compress_layer(int64_t layer, const std::vector<Target>& targets) {
        std::map<std::string, std::shared_ptr<InputMoments>> moments;
        if (walk_) {
            std::set<std::string> wanted;
            for (const Target& target : targets) wanted.insert(target.name);
            walk_->observe([&](std::span<const decoder::RowMath::Use> uses, const float* x,
                               int64_t in, int64_t rows) {
                // Layers that have one input share its moments.
                std::shared_ptr<InputMoments> own;
                for (const decoder::RowMath::Use& use : uses)
                    if (const auto found = moments.find(use.layer->name); found != moments.end())
                        own = found->second;
                if (own == nullptr) own = std::make_shared<InputMoments>(in);
                bool is_wanted = false;
                for (const decoder::RowMath::Use& use : uses)
                    if (wanted.contains(use.layer->name)) {
                        moments[use.layer->name] = own;
                        is_wanted = true;
                    }
                if (is_wanted) own->add(x, rows, team_);
            });
        }
        std::vector<PackedTensor> tensors;
        WeightErrors errors;
        // The order for the moments that were used last: layers with one input follow each other.
        const InputMoments* last = nullptr;
        std::vector<float> mean;
        InputOrder inputs;
        for (const Target& target : targets) {
            const std::vector<float> numbers = numbers_of_target(target);
            RoundingForm form = task_.form.rounding;
            form.group = group_of(*target.entry);
            const auto found = moments.find(target.name);
            const bool has_moments = found != moments.end() && found->second->rows() > 0;
            if (has_moments && found->second.get() != last) {
                last = found->second.get();
                mean = last->mean();
                inputs = order_inputs(mean, last->in(), kDamping, team_);
            }
            if (walk_ && !has_moments)
                log_warn("compress",
                         "{}: no calibration token reaches this layer, so its weights are rounded "
                         "to nearest",
                         target.entry->name);
            const int64_t out = target.entry->shape[0];
            const RoundedMatrix rounded =
                has_moments ? round_with_compensation(form, numbers, out, inputs, team_)
                            : round_to_nearest(form, numbers, out, {}, team_);
            const std::vector<float> values = compress::numbers_of(rounded, team_);
            errors.emplace_back(
                target.entry->name,
                has_moments ? output_error(numbers, values, mean, target.entry->shape[1], team_)
                            : weight_error(numbers, values));
            for (PackedTensor& tensor :
                 packed_tensors(task_.form, module_of(target.entry->name), rounded))
                tensors.push_back(std::move(tensor));
            if (walk_)
                source_.replace(target.name,
                                std::make_shared<const std::vector<std::byte>>(
                                    as_stored(values, config_.dtype)),
                                task_.form.inputs);
        }
        files_.write(layer, tensors, errors);
        add_errors(errors);
    }

    std::vector<float> numbers_of_target(const Target& target) {
        const storage::FolderWeight weight =
            source_.weights().take(target.name, target.entry->shape);
        std::vector<float> numbers(
            static_cast<size_t>(target.entry->shape[0] * target.entry->shape[1]));
        decoder::to_fp32(weight.entry.bytes.data(), weight.entry.dtype, std::ssize(numbers),
                         numbers.data());
        for (const float number : numbers)
            if (!std::isfinite(number))
                fail(ExitCode::kInput,
                     "{}: tensor `{}` contains NaN or infinity, which cannot be rounded: the "
                     "folder is damaged, or its training diverged",
                     task_.from, printable(target.entry->name));
        return numbers;
    }

    // Uses the weights of a layer that an earlier run has finished, for the texts to go through it.
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

    // Writes the files of the folder under the names of the original's, each with its own tensors.
    void write_files() {
        storage::make_folder(task_.out);
        std::map<std::string, std::string> file_of;
        for (const std::string& path : task_.folder->weights) {
            const std::string name =
                fs::path(path).lexically_relative(fs::path(task_.from)).generic_string();
            const std::string to = fmt::format("{}/{}", task_.out, name);
            if (fs::path(to).has_parent_path())
                storage::make_folder(fs::path(to).parent_path().string());
            write_file(path, to, name, file_of);
        }
        if (task_.folder->index_path.empty()) return;
        nlohmann::ordered_json index;
        index["metadata"]["total_size"] = result_.bytes_after;
        for (const auto& [tensor, file] : file_of) index["weight_map"][tensor] = file;
        write_text("model.safetensors.index.json", index.dump(2) + "\n");
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

    // Notes a linear layer that keeps its numbers.
    void ignore(const SafetensorsEntry& entry) {
        const bool is_embedding = entry.name.ends_with(config_.names.at("embed") + ".weight");
        if (entry.shape.size() == 2 && entry.name.ends_with(kWeight) && !is_embedding)
            ignored_.insert(module_of(entry.name));
    }

    void write_config() {
        storage::copy_model_config(task_.from, task_.out);
        const std::string path = task_.out + "/config.json";
        auto json = nlohmann::ordered_json::parse(read_file(path, size_t{1} << 30));
        ignored_.insert(config_.names.at("head"));  // also if it shares the embedding's weight
        json["quantization_config"] =
            quantization_config(task_.form, groups_, {ignored_.begin(), ignored_.end()});
        write_text("config.json", json.dump(2) + "\n");
    }

    void write_text(const std::string& name, const std::string& text) const {
        storage::AtomicFile file(fmt::format("{}/{}", task_.out, name), Bytes{std::ssize(text)});
        file.write(text);
        file.commit();
    }

    const FolderTask& task_;
    const storage::TransformerConfig& config_;
    kernels::ThreadTeam& team_;
    decoder::WeightSource source_;
    LayerFiles files_;
    std::optional<LayerWalk> walk_;
    FolderResult result_;
    std::map<int64_t, std::vector<std::string>> groups_;  // modules by the size of their groups
    std::map<std::string, int64_t> layer_of_;             // of each rounded tensor of the folder
    std::set<std::string> ignored_;                       // modules that keep their numbers
};

}  // namespace

void require_compressible(const FolderTask& task) {
    const storage::TransformerConfig& config = task.folder->config;
    const std::string& path = task.folder->config_path;
    if (config.quantization)
        fail(ExitCode::kInput,
             "{}: the weights are rounded already ({}): compress the folder that they were made of",
             path, method_name(config.quantization->method));
    if (config.is_transposed)
        fail(ExitCode::kInput,
             "{}: a {} stores its matrices transposed, in modules (Conv1D) that compressed-tensors "
             "does not know: such a folder cannot be written; `generate` and `serve` round the "
             "weights themselves with --weights int4",
             path, config.architecture);
    if (!config.outer.empty())
        fail(ExitCode::kInput,
             "{}: is a {}, of which only the text part is known here: compress a folder of the "
             "text model alone (`dslaunch model merge` and `ckpt export` write one)",
             path, config.outer);
    storage::require_weights(*task.folder);
    std::error_code missing;
    if (fs::equivalent(task.from, task.out, missing))
        fail(ExitCode::kInput, "{}: is the model itself: give another folder for the result",
             printable(task.out));
    storage::require_unused(task.out, task.is_forced);
    if (task.folder->index_path.empty()) storage::require_room_for_model(task.out);
    storage::require_room_for_config(task.from, task.out);
}

FolderResult compress_folder(const FolderTask& task, kernels::ThreadTeam& team) {
    require_compressible(task);
    return FolderCompressor(task, team).run();
}

}  // namespace dslaunch::compress
