#include "storage/export/weight_export.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/machine/disk_room.h"
#include "base/text.h"
#include "storage/disk/output_place.h"
#include "storage/export/floats.h"
#include "storage/export/row_major.h"
#include "storage/files/atomic_file.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::storage {
namespace {

namespace fs = std::filesystem;

// A tensor or a view of the source, to be written into one file under all of NAMES.
struct Leaving {
    int tensor = 0;
    DType dtype = DType::kF32;
    std::vector<std::string> names;
    const CheckpointView* view = nullptr;

    [[nodiscard]] int64_t bytes(const CheckpointTensor& from) const {
        return (view == nullptr ? from.numel() : view->numel()) * dtype_bytes(dtype);
    }
};

bool matches(const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// Returns the name under which transformers saves a tied tensor: the name of the embedding, not of
// the output layer.
const std::string& kept_name(const CheckpointTensor& tensor) {
    const auto is_embedding = [](const std::string& name) {
        return name.find("emb") != std::string::npos || name.find("wte") != std::string::npos ||
               name.find("shared") != std::string::npos;
    };
    if (is_embedding(tensor.name)) return tensor.name;
    const auto found = std::ranges::find_if(tensor.aliases, is_embedding);
    return found == tensor.aliases.end() ? tensor.name : *found;
}

std::string renamed(const std::string& name, TensorKind kind, const ExportOptions& options) {
    if (name.starts_with(options.strip_prefix))
        return options.add_prefix + name.substr(options.strip_prefix.size());
    if (kind != TensorKind::kBuffer)
        fail(ExitCode::kUsage,
             "tensor `{}` does not begin with the prefix `{}`, which is to be removed",
             printable(name), printable(options.strip_prefix));
    return options.add_prefix + name;
}

bool is_left_out(const CheckpointTensor& tensor, const CheckpointView* view,
                 const ExportOptions& options) {
    if (!tensor.is_persistent && view == nullptr) return true;
    if (options.excludes_frozen && tensor.kind == TensorKind::kFrozen) return true;
    return options.is_for_transformers && tensor.kind == TensorKind::kBuffer &&
           is_derived_buffer(tensor.name);
}

class Selection {
  public:
    Selection(const TensorSource& source, const ExportOptions& options, ExportReport& report)
        : options_(options), report_(report) {
        for (size_t i = 0; i < source.tensors().size(); ++i) {
            const CheckpointTensor& tensor = source.tensors()[i];
            if (tensor.kind != TensorKind::kRankBuffer) add(static_cast<int>(i), tensor);
        }
        if (leaving_.empty())
            fail(ExitCode::kUsage,
                 "{}: nothing is left to export: all of its {} tensors are "
                 "excluded",
                 source.path(), source.tensors().size());
    }
    [[nodiscard]] std::vector<Leaving> take() { return std::move(leaving_); }

  private:
    void add(int index, const CheckpointTensor& tensor) {
        std::vector<std::string> names;
        if (options_.writes_all_names) {
            names = {tensor.name};
            names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
        } else {
            names = {kept_name(tensor)};
        }
        add(index, tensor, names, nullptr);
        for (const CheckpointView& view : tensor.views) add(index, tensor, {view.name}, &view);
    }

    void add(int index, const CheckpointTensor& tensor, const std::vector<std::string>& names,
             const CheckpointView* view) {
        Leaving leaving{index, tensor.dtype, {}, view};
        if (options_.dtype && is_floating(tensor.dtype)) leaving.dtype = *options_.dtype;
        for (const std::string& name : names) {
            if (is_left_out(tensor, view, options_) ||
                std::ranges::any_of(options_.exclude, [&](const std::string& pattern) {
                    return matches(pattern, name);
                })) {
                report_.left_out.push_back(name);
                continue;
            }
            leaving.names.push_back(renamed(name, tensor.kind, options_));
            if (!names_.insert(leaving.names.back()).second)
                fail(ExitCode::kUsage,
                     "two tensors get the same name, `{}`: choose other prefixes (--strip-prefix, "
                     "--add-prefix)",
                     printable(leaving.names.back()));
        }
        if (!leaving.names.empty()) leaving_.push_back(std::move(leaving));
    }

    const ExportOptions& options_;
    ExportReport& report_;
    std::vector<Leaving> leaving_;
    std::set<std::string> names_;
};

// Splits the tensors into the same shards that huggingface_hub would make, because programs and
// users expect these files.
std::vector<std::vector<Leaving>> split_up(std::vector<Leaving> all, const TensorSource& source,
                                           std::optional<Bytes> shard_max) {
    if (!shard_max) return {std::move(all)};
    std::vector<std::vector<Leaving>> shards;
    std::vector<Leaving> current;
    int64_t current_bytes = 0;
    for (Leaving& leaving : all) {
        const int64_t bytes = leaving.bytes(source.tensors()[leaving.tensor]);
        if (bytes > shard_max->value) {
            shards.emplace_back().push_back(std::move(leaving));
            continue;
        }
        if (current_bytes + bytes > shard_max->value) {
            shards.push_back(std::exchange(current, {}));
            current_bytes = 0;
        }
        current.push_back(std::move(leaving));
        current_bytes += bytes;
    }
    if (!current.empty()) shards.push_back(std::move(current));
    return shards;
}

// Writes one shard.
class ShardFile {
  public:
    ShardFile(const TensorSource& source, const std::string& path,
              const std::vector<Leaving>& shard)
        : source_(source), writer_(path, entries(source, shard), {{"format", "pt"}}) {}

    void write(const std::vector<Leaving>& shard) {
        size_t entry = 0;
        for (const Leaving& leaving : shard) {
            write_tensor(leaving, entry);
            entry += leaving.names.size();
        }
        writer_.commit();
    }

  private:
    static std::vector<SafetensorsEntry> entries(const TensorSource& source,
                                                 const std::vector<Leaving>& shard) {
        std::vector<SafetensorsEntry> all;
        for (const Leaving& leaving : shard) {
            const std::vector<int64_t>& shape = leaving.view == nullptr
                                                    ? source.tensors()[leaving.tensor].shape
                                                    : leaving.view->shape;
            for (const std::string& name : leaving.names)
                all.push_back({name, leaving.dtype, shape, {}});
        }
        return all;
    }

    void write_tensor(const Leaving& leaving, size_t entry) {
        const CheckpointTensor& tensor = source_.tensors()[leaving.tensor];
        int64_t numel_done = 0;
        const auto put = [&](std::span<const std::byte> part) {
            const std::span<const std::byte> converted =
                convert(part, tensor, leaving.dtype, numel_done);
            for (size_t i = 0; i < leaving.names.size(); ++i) writer_.append(entry + i, converted);
            numel_done += std::ssize(part) / dtype_bytes(tensor.dtype);
        };
        const Range all{0, tensor.numel()};
        if (is_row_major(tensor) && leaving.view == nullptr) {
            source_.for_each(leaving.tensor, kWeights, all,
                             [&](const Range&, std::span<const std::byte> part) { put(part); });
            return;
        }
        std::vector<std::byte> memory;
        memory.reserve(static_cast<size_t>(tensor.numel() * dtype_bytes(tensor.dtype)));
        source_.for_each(leaving.tensor, kWeights, all,
                         [&](const Range&, std::span<const std::byte> part) {
                             memory.insert(memory.end(), part.begin(), part.end());
                         });
        if (leaving.view != nullptr) {
            for_each_row_major(*leaving.view, memory, dtype_bytes(tensor.dtype), put);
        } else {
            for_each_row_major(tensor, memory, dtype_bytes(tensor.dtype), put);
        }
    }

    std::span<const std::byte> convert(std::span<const std::byte> part,
                                       const CheckpointTensor& tensor, DType dtype,
                                       int64_t first_element) {
        if (tensor.dtype == dtype) return part;
        to_doubles(part, tensor.dtype, values_);
        if (const int64_t overflow = from_doubles(values_, dtype, converted_); overflow >= 0)
            fail(ExitCode::kInput,
                 "{}: element {} of `{}` is {:g}, too large for {}, and would become infinite: "
                 "choose another --dtype (bf16 has the range of fp32)",
                 source_.path(), first_element + overflow, printable(tensor.name),
                 values_[overflow], dtype_name(dtype));
        return converted_;
    }

    const TensorSource& source_;
    SafetensorsWriter writer_;
    std::vector<double> values_;
    std::vector<std::byte> converted_;
};

bool is_model_file(const std::string& name) {
    return matches("model.safetensors", name) || matches("model-*-of-*.safetensors", name) ||
           name == kWeightIndex;
}

std::vector<std::string> earlier_model(const std::string& folder) {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
        if (is_model_file(entry.path().filename().string())) found.push_back(entry.path().string());
    std::ranges::sort(found);
    return found;
}

bool is_single_file(const ExportOptions& options) {
    return options.out.ends_with(".safetensors");
}

// Makes OUT's folder, and returns the existing files that the export would replace.
std::vector<std::string> prepare_out(const ExportOptions& options) {
    std::vector<std::string> earlier;
    if (is_single_file(options)) {
        if (options.shard_max)
            fail(ExitCode::kUsage, "{}: is the name of one file, but shards need a folder",
                 options.out);
        std::error_code absent;  // absence is not an error
        if (fs::exists(options.out, absent)) earlier = {options.out};
        if (fs::is_directory(options.out, absent))
            fail(ExitCode::kUsage, "{}: is a folder, not a file", options.out);
        const fs::path parent = fs::path(options.out).parent_path();
        if (!parent.empty()) make_folder(parent.string());
    } else {
        std::error_code absent;
        if (fs::is_regular_file(options.out, absent))
            fail(ExitCode::kUsage,
                 "{}: is a file; OUT must be a folder or a file named NAME.safetensors",
                 options.out);
        make_folder(options.out);
        earlier = earlier_model(options.out);
    }
    if (!earlier.empty() && !options.is_forced) fail_used(earlier.front());
    return earlier;
}

void check_room(const ExportOptions& options, Bytes need) {
    std::string folder = options.out;
    if (is_single_file(options)) folder = fs::path(options.out).parent_path().string();
    const std::optional<DiskSpace> disk = disk_space(folder.empty() ? "." : folder);
    if (!disk)
        fail(ExitCode::kDisk, "{}: cannot determine the free space there: {}", options.out,
             errno_text(errno));
    if (disk->free < need)
        fail(ExitCode::kDisk, "{}: the export needs {}, but only {} are free there", options.out,
             to_text(need), to_text(disk->free));
}

std::vector<std::string> copy_files(const std::string& from, const std::string& to,
                                    const std::function<bool(const std::string&)>& is_wanted) {
    std::vector<std::string> copied;
    std::error_code error;
    for (const std::string& name : config_files_of(from, &error)) {
        if (!is_wanted(name)) continue;
        std::string text = read_file(fmt::format("{}/{}", from, name), size_t{1} << 30);
        if (name == "config.json") text = config_for_weights(from, std::move(text));
        const std::string place = fmt::format("{}/{}", to, name);
        fs::create_directories(fs::path(place).parent_path(), error);
        write_atomically(place, text);
        copied.push_back(name);
    }
    if (error) fail(ExitCode::kInput, "{}: cannot be listed: {}", from, error.message());
    std::ranges::sort(copied);
    return copied;
}

std::string shard_name(size_t index, size_t count) {
    if (count == 1) return "model.safetensors";
    return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

}  // namespace

void check_export_place(const ExportOptions& options) {
    static_cast<void>(prepare_out(options));
}

ExportReport export_weights(const TensorSource& source, const ExportOptions& options) {
    ExportReport report;
    std::vector<Leaving> leaving = Selection(source, options, report).take();
    if (source.checkpoint() == nullptr) require_not_input(options.out, source.path());
    const std::vector<std::string> earlier = prepare_out(options);
    Bytes need;
    for (const Leaving& one : leaving) {
        const int64_t bytes = one.bytes(source.tensors()[one.tensor]);
        report.bytes += Bytes{bytes};
        need += Bytes{bytes} * static_cast<int64_t>(one.names.size());
    }
    check_room(options, need);
    // If this export fails halfway, the index of an earlier export must not be left, because it
    // would lead readers to the new files.
    for (const std::string& path : earlier) {
        std::error_code ignored;
        if (path.ends_with(".json")) fs::remove(path, ignored);
    }
    const auto shards = split_up(std::move(leaving), source, options.shard_max);
    std::map<std::string, std::string> file_of;
    for (size_t i = 0; i < shards.size(); ++i) {
        const std::string name = shard_name(i, shards.size());
        const std::string path =
            is_single_file(options) ? options.out : fmt::format("{}/{}", options.out, name);
        ShardFile(source, path, shards[i]).write(shards[i]);
        report.files.push_back(path);
        for (const Leaving& one : shards[i]) {
            for (const std::string& tensor : one.names) {
                report.names.push_back(tensor);
                file_of.emplace(tensor, name);
            }
        }
    }
    if (shards.size() > 1) {
        report.files.push_back(options.out + "/" + kWeightIndex);
        write_weight_index(report.files.back(), report.bytes, file_of);
    }
    for (const std::string& path : earlier) {
        std::error_code ignored;
        if (std::ranges::find(report.files, path) == report.files.end()) fs::remove(path, ignored);
    }
    return report;
}

Bytes parse_shard_bytes(const std::string& text, const char* option) {
    struct Unit {
        const char* name;
        double bytes;
    };
    constexpr double kPlainBytesMin = 1e5;  // less, without a unit, is taken for a mistake
    static constexpr std::array<Unit, 9> kUnits = {{{"KIB", 1024.0},
                                                    {"MIB", 1048576.0},
                                                    {"GIB", 1073741824.0},
                                                    {"TIB", 1099511627776.0},
                                                    {"KB", 1e3},
                                                    {"MB", 1e6},
                                                    {"GB", 1e9},
                                                    {"TB", 1e12},
                                                    {"B", 1}}};
    std::string number(trim(text));
    std::string upper = number;
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    double unit = 1;
    for (const Unit& known : kUnits) {
        if (!upper.ends_with(known.name)) continue;
        unit = known.bytes;
        number.erase(number.size() - std::string_view(known.name).size());
        break;
    }
    const auto value = parse_double(trim(number));
    if (!value || !(*value * unit >= 1) || *value * unit > 0x1p60)
        fail(ExitCode::kUsage, "{}: `{}` is not a size; write 5GB, 500MB or 5GiB", option,
             printable(text));
    if (number.size() == trim(text).size() && *value < kPlainBytesMin)
        fail(ExitCode::kUsage, "{}: `{}` has no unit and would mean bytes: write {}GB or {}MB",
             option, printable(text), trim(number), trim(number));
    return Bytes{static_cast<int64_t>(*value * unit)};
}

std::vector<std::string> config_files_of_result(const std::string& model, bool adapters) {
    if (adapters) return {};
    if (const auto folder = model_folder_of(model)) return config_files_of(*folder);
    return {"config.json"};
}

void check_model_config(const std::string& from) {
    std::error_code ignored;
    if (!fs::is_regular_file(from + "/config.json", ignored))
        fail(ExitCode::kInput,
             "{}: has no config.json; give the Hugging Face folder of the model that was traced",
             from);
}

void require_room_for_config(const std::string& from, const std::string& to) {
    const std::vector<std::string> own = config_files_of(from);
    for (const std::string& name : config_files_of(to))
        if (std::ranges::find(own, name) == own.end())
            fail(ExitCode::kInput,
                 "{}/{}: belongs to another model, because {} has no such file: use an empty "
                 "folder, or remove this file",
                 printable(to), printable(name), printable(from));
}

void require_new_config(const std::string& from, const std::string& to, bool force) {
    std::error_code ignored;
    for (const std::string& name : config_files_of(from))
        if (const fs::path place = fs::path(to) / name; !force && fs::exists(place, ignored))
            fail_used(place.string());
}

std::vector<std::string> copy_model_config(const std::string& from, const std::string& to) {
    check_model_config(from);
    return copy_files(from, to, [](const std::string&) { return true; });
}

std::vector<std::string> copy_files_beside_config(const std::string& from, const std::string& to) {
    return copy_files(from, to, [](const std::string& name) { return name != "config.json"; });
}

std::vector<std::string> copy_text_files(const std::string& from, const std::string& to) {
    return copy_files(from, to, [](const std::string& name) {
        return !name.ends_with("config.json") || name == "tokenizer_config.json";
    });
}

}  // namespace dslaunch::storage
