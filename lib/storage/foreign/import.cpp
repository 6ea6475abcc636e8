#include "storage/foreign/import.h"

#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/checkpoint/manifest.h"
#include "storage/checkpoint/shard_writer.h"
#include "storage/export/floats.h"
#include "storage/export/source_of_path.h"
#include "storage/files/file_kind.h"
#include "storage/files/input_file.h"
#include "storage/files/mapped_file.h"
#include "storage/foreign/deepspeed_model.h"
#include "storage/foreign/universal_source.h"
#include "storage/huggingface/model_folder.h"
#include "storage/named/place.h"

namespace dslaunch::storage {
namespace {

namespace fs = std::filesystem;

// The source that is being read, in any format.
struct Opened {
    std::unique_ptr<TensorSource> source;
    std::string writer;
    std::vector<std::string> notes;
};

Opened open_source(const ImportOptions& options, ForeignFormat format) {
    Opened opened;
    if (format == ForeignFormat::kDeepSpeed) {
        auto source = open_deepspeed(options.source, options.tag, options.frozen);
        opened.writer = source->writer();
        opened.notes = source->notes();
        opened.source = std::move(source);
        return opened;
    }
    std::vector<std::string> files = {options.source};
    if (fs::is_directory(options.source)) files = safetensors_files_of(options.source);
    opened.writer =
        fmt::format("safetensors, {} file{}", files.size(), files.size() > 1 ? "s" : "");
    opened.source = open_safetensors(options.source, files);
    opened.notes.emplace_back(
        "it contains only weights: optimizer, step and schedule start from the beginning");
    return opened;
}

// Returns true if the file at PATH is a pickle, as torch.save writes it, or has the name of one.
bool is_pickle_file(const std::string& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) &&
           (path.ends_with("/pytorch_model.bin") || path == "pytorch_model.bin" ||
            file_kind(MappedFile(path).bytes()) == FileKind::kPickle);
}

std::string mapped(const std::string& name, const CheckpointTensor& tensor,
                   const ImportOptions& options) {
    if (name.starts_with(options.names.strip))
        return options.names.add + name.substr(options.names.strip.size());
    if (tensor.kind != TensorKind::kBuffer)
        fail(ExitCode::kInput,
             "{}: tensor `{}` does not begin with the prefix `{}`, which is to be removed",
             options.source, printable(name), printable(options.names.strip));
    return options.names.add + name;
}

class Import {
  public:
    Import(FileTree& tree, const ImportOptions& options, const TensorSource& source)
        : tree_(tree), options_(options), source_(source) {
        if (source.checkpoint() != nullptr) checkpoint_ = *source.checkpoint();
        checkpoint_.version = DSL_VERSION;
        checkpoint_.created = creation_time();
        checkpoint_.id = fmt::format("import-{:x}-{:x}", std::time(nullptr), ::getpid());
        checkpoint_.world_size = 1;
        checkpoint_.zero_stage = 0;
        checkpoint_.tensors.clear();
        std::set<std::string> names;
        for (const CheckpointTensor& tensor : source.tensors()) add(tensor, names);
    }

    // Imports the source and returns the committed folder.
    std::string run() {
        std::vector<ShardPlan> plans = {plan("weights", kWeights, 0)};
        if (!checkpoint_.states.empty())
            plans.push_back(plan("optimizer", 0, std::ssize(checkpoint_.states)));
        Bytes need;
        for (const ShardPlan& one : plans) need += ShardWriter::file_bytes(one, checkpoint_);
        CheckpointStore store(tree_, options_.root, 0);
        const int64_t step = checkpoint_.training.step;
        const std::string folder = store.begin(step, checkpoint_.id, need);
        try {
            for (const ShardPlan& one : plans) checkpoint_.files.push_back(write(folder, one));
            return store.commit(checkpoint_);
        } catch (...) {
            store.abandon(step, checkpoint_.id);
            throw;
        }
    }

    [[nodiscard]] const Checkpoint& checkpoint() const { return checkpoint_; }

  private:
    void add(CheckpointTensor tensor, std::set<std::string>& names) {
        if (source_.checkpoint() == nullptr)
            tensor.kind = is_floating(tensor.dtype) ? TensorKind::kTrained : TensorKind::kBuffer;
        tensor.name = mapped(tensor.name, tensor, options_);
        for (std::string& alias : tensor.aliases) alias = mapped(alias, tensor, options_);
        if (is_half(tensor.dtype)) tensor.dtype = DType::kF32;
        std::vector<std::string> all = tensor.aliases;
        all.push_back(tensor.name);
        for (const std::string& name : all)
            if (!names.insert(name).second)
                fail(ExitCode::kInput,
                     "{}: two tensors get the same name, `{}`: choose other prefixes "
                     "(--strip-prefix, --add-prefix)",
                     options_.source, printable(name));
        checkpoint_.tensors.push_back(std::move(tensor));
    }

    // Returns the plan of one file. If FIRST is kWeights, the file has the weights of all tensors;
    // otherwise it has the states [FIRST, END) of all trained tensors.
    ShardPlan plan(const char* name, int first, int64_t end) const {
        ShardPlan plan{fmt::format("{}-00000-of-00001.safetensors", name), {}};
        for (int i = 0; i < std::ssize(checkpoint_.tensors); ++i) {
            const CheckpointTensor& tensor = checkpoint_.tensors[i];
            if (tensor.numel() == 0) continue;
            if (first == kWeights) plan.pieces.push_back({i, kWeights, {0, tensor.numel()}});
            if (first == kWeights || !has_states(tensor)) continue;
            for (int state = first; state < end; ++state)
                plan.pieces.push_back({i, state, {0, tensor.numel()}});
        }
        return plan;
    }

    CheckpointFile write(const std::string& folder, const ShardPlan& plan) {
        ShardWriter writer(tree_, folder, plan, checkpoint_);
        std::vector<double> values;
        std::vector<std::byte> wide;
        for (const CheckpointPiece& piece : plan.pieces) {
            const DType from = dtype_of(source_.tensors()[piece.tensor], piece.state);
            source_.for_each(piece.tensor, piece.state, piece.elements,
                             [&](const Range&, std::span<const std::byte> part) {
                                 if (!is_half(from)) return writer.write(part);
                                 to_doubles(part, from, values);
                                 static_cast<void>(from_doubles(values, DType::kF32, wide));
                                 writer.write(wide);
                             });
        }
        return writer.finish();
    }

    FileTree& tree_;
    const ImportOptions& options_;
    const TensorSource& source_;
    Checkpoint checkpoint_;
};

}  // namespace

std::string_view foreign_format_name(ForeignFormat format) {
    return format == ForeignFormat::kDeepSpeed ? "deepspeed" : "safetensors";
}

ForeignFormat detect_foreign_format(const std::string& path) {
    std::error_code error;
    if (!fs::exists(path, error)) fail(ExitCode::kInput, "{}: no such file or folder", path);
    const Place place = place_at(path);
    if (place.kind == PlaceKind::kAdapter || place.kind == PlaceKind::kFileOfAdapter ||
        is_file_of_rows(path))
        refuse_place(place, PlaceUse::kForeign);
    if (path.ends_with(".safetensors")) return ForeignFormat::kSafetensors;
    std::string pickled = path;
    if (fs::is_directory(path, error)) {
        if (fs::exists(path + "/latest", error) || fs::exists(path + "/latest_universal", error) ||
            is_universal(path))
            return ForeignFormat::kDeepSpeed;
        bool has_weights = false;
        for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
            const std::string name = entry.path().filename().string();
            if (name.ends_with("_model_states.pt") || name.ends_with("_optim_states.pt"))
                return ForeignFormat::kDeepSpeed;
            has_weights |= name == "model.safetensors" || name == "model.safetensors.index.json";
        }
        if (error) fail(ExitCode::kInput, "{}: cannot be listed: {}", path, error.message());
        if (has_weights) return ForeignFormat::kSafetensors;
        pickled = path + "/pytorch_model.bin";
    }
    if (is_pickle_file(pickled))
        fail(ExitCode::kInput,
             "{0}: is a pickled state_dict, which is not supported. Convert it, with one name for "
             "each tied weight, and give model.safetensors: python3 -c 'import torch, "
             "safetensors.torch as s; seen = set(); s.save_file({{n: w.contiguous() for n, w in "
             "torch.load(\"{0}\").items() if not (w.data_ptr() in seen or "
             "seen.add(w.data_ptr()))}}, \"model.safetensors\")'",
             pickled);
    refuse_place(place, PlaceUse::kForeign);
}

ImportReport import_checkpoint(FileTree& tree, const ImportOptions& options) {
    ImportReport report;
    report.format =
        options.tag.empty() ? detect_foreign_format(options.source) : ForeignFormat::kDeepSpeed;
    const Opened opened = open_source(options, report.format);
    Import import(tree, options, *opened.source);
    report.folder = import.run();
    const Checkpoint& written = import.checkpoint();
    report.writer = opened.writer;
    report.notes = opened.notes;
    report.step = written.training.step;
    report.tensor_count = std::ssize(written.tensors);
    for (const CheckpointTensor& tensor : written.tensors) report.numel += tensor.numel();
    for (const CheckpointFile& file : written.files) report.bytes += Bytes{file.bytes};
    report.has_states = !written.states.empty();
    report.is_finite = written.is_finite();
    return report;
}

}  // namespace dslaunch::storage
