#include "storage/foreign/deepspeed_split.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

namespace fs = std::filesystem;
using Span = std::span<const std::byte>;

constexpr int64_t kRanksMax = 65'536;

// Returns the number after PREFIX at the beginning of NAME, and sets REST to the text after the
// number. Returns -1 if NAME does not begin with PREFIX and a number.
int64_t number_after(std::string_view name, std::string_view prefix, std::string_view& rest) {
    if (!name.starts_with(prefix)) return -1;
    const std::string_view tail = name.substr(prefix.size());
    int64_t number = -1;
    const auto [end, error] = std::from_chars(tail.data(), tail.data() + tail.size(), number);
    if (error != std::errc() || number < 0 || number > kRanksMax) return -1;
    rest = tail.substr(static_cast<size_t>(end - tail.data()));
    return number;
}

// Returns true if A and B have the same bytes.
bool same_bytes(const Chunks& a, const Chunks& b) {
    std::string_view left, right;
    size_t i = 0, j = 0;
    const auto text = [](const Span& span) {
        return std::string_view(reinterpret_cast<const char*>(span.data()), span.size());
    };
    while (true) {
        while (left.empty() && i < a.size()) left = text(a[i++]);
        while (right.empty() && j < b.size()) right = text(b[j++]);
        const size_t count = std::min(left.size(), right.size());
        if (count == 0) return left.empty() && right.empty();
        if (std::memcmp(left.data(), right.data(), count) != 0) return false;
        left.remove_prefix(count);
        right.remove_prefix(count);
    }
}

// Returns the first NUMEL elements of a tensor's weights and states.
TensorChunks first_rows(const CheckpointTensor& about, TensorChunks chunks, int64_t numel) {
    for (size_t k = 0; k < chunks.size(); ++k)
        if (!chunks[k].empty())
            chunks[k] =
                slice(chunks[k], {0, numel}, dtype_bytes(dtype_of(about, static_cast<int>(k) - 1)));
    return chunks;
}

// Removes the rows of a vocabulary from index ROWS on. Does nothing if ROWS is negative.
void remove_padding(CheckpointTensor& tensor, TensorChunks& chunks, int64_t rows) {
    if (rows < 0 || tensor.shape.empty() || rows >= tensor.shape.front()) return;
    tensor.shape.front() = rows;
    chunks = first_rows(tensor, std::move(chunks), tensor.numel());
}

}  // namespace

SplitFiles find_split(const std::string& folder) {
    SplitFiles files;
    std::set<int64_t> models, tensor_ranks;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename().string();
        std::string_view rest;
        if (name.find("expert_") != std::string::npos)
            refuse(folder, "{} belongs to a mixture of experts, which is not supported",
                   printable(name));
        if (const size_t at = name.find("mp_rank_"); at != std::string::npos)
            models.insert(number_after(std::string_view(name).substr(at), "mp_rank_", rest));
        const int64_t layer = number_after(name, "layer_", rest);
        if (layer < 0 || !rest.ends_with("-model_states.pt")) continue;
        const int64_t tensor_rank = std::max<int64_t>(number_after(rest, "-model_", rest), 0);
        tensor_ranks.insert(tensor_rank);
        files.layers.push_back({layer, tensor_rank, entry.path().string()});
    }
    if (error) refuse(folder, "cannot be listed: {}", error.message());
    const auto count_of = [&](const std::set<int64_t>& numbers, const char* what) {
        const auto count = std::ssize(numbers);
        if (count > 0 && (*numbers.begin() != 0 || *numbers.rbegin() != count - 1))
            refuse(folder, "the files of a {} rank are missing: {} of {} are there", what, count,
                   *numbers.rbegin() + 1);
        return count;
    };
    files.model_ranks = count_of(models, "model");
    files.tensor_ranks = files.layers.empty() ? std::max<int64_t>(files.model_ranks, 1)
                                              : count_of(tensor_ranks, "tensor");
    if (files.model_ranks % files.tensor_ranks != 0)
        refuse(folder,
               "has files of {} model ranks, which is not a multiple of its {} tensor ranks: files "
               "are missing, or from different saves",
               files.model_ranks, files.tensor_ranks);
    std::ranges::sort(files.layers, {}, [](const SplitFiles::Layer& one) {
        return std::pair(one.layer, one.tensor_rank);
    });
    return files;
}

DeepSpeedSplit::DeepSpeedSplit(const std::string& folder, const SplitFiles& files,
                               const DeepSpeedOptions& options)
    : tensor_ranks_(files.tensor_ranks) {
    folder_ = folder;
    for (int64_t rank = 0; rank < files.model_ranks; ++rank) {
        DeepSpeedOptions own = options;
        own.model_rank = rank;
        own.is_part = true;
        parts_.push_back(std::make_unique<DeepSpeedSource>(folder, own));
        check_same_model(parts_.back()->model_file(), parts_.front()->model_file());
    }
    if (parts_.empty()) refuse(folder, "has layer_* files, but no mp_rank_00_model_states.pt");
    check_ranks();
    take_counts();
    rules_ = std::make_unique<SplitRules>(parts_.front()->model_file(),
                                          parts_.front()->value_of("universal_checkpoint_info"),
                                          static_cast<size_t>(tensor_ranks_));
    for (size_t first = 0; first < parts_.size(); first += static_cast<size_t>(tensor_ranks_))
        add_stage(first);
    if (files.layers.empty()) return;
    for (const SplitFiles::Layer& layer : files.layers) add_layer(layer);
    check_layers(files.layers);
}

// Checks that the folder has as many ranks as the model's file says. mp_world_size may be 1 if
// another program grouped the ranks.
void DeepSpeedSplit::check_ranks() const {
    const auto count = std::ssize(parts_);
    int64_t wrote = integer_or(parts_.front()->value_of("mp_world_size"), count);
    int64_t tensor_ranks = tensor_ranks_;
    if (const PickleValue* degrees = parts_.front()->value_of("checkpoint_parallel_dimensions")) {
        tensor_ranks = integer_or(degrees->find("tp_degree"), tensor_ranks);
        const int64_t stages = integer_or(degrees->find("pp_degree"), 1);
        if (tensor_ranks < 1 || tensor_ranks > kRanksMax || stages < 1 || stages > kRanksMax)
            refuse(parts_.front()->model_file().path(), "its numbers of ranks are impossible");
        wrote = std::max(wrote, stages * tensor_ranks);
    }
    if (wrote > count)
        refuse(folder_,
               "{} model ranks wrote the checkpoint, but files of {} are there: copy the files of "
               "the others too",
               wrote, count);
    if (tensor_ranks != tensor_ranks_)
        refuse(folder_,
               "{} tensor ranks shared each layer, but there are files of {} tensor ranks: files "
               "are missing, or from different saves",
               tensor_ranks, tensor_ranks_);
}

// Adds the tensors of one pipeline stage. FIRST is the first tensor-parallel rank of the stage; its
// other ranks follow. All of them have the same layers.
void DeepSpeedSplit::add_stage(size_t first) {
    const auto& tensors = parts_[first]->tensors();
    for (size_t t = 0; t < tensors.size(); ++t) {
        std::vector<Part> parts;
        const std::string& name = tensors[t].name;
        for (size_t rank = 0; rank < static_cast<size_t>(tensor_ranks_); ++rank) {
            const DeepSpeedSource* const source = parts_[first + rank].get();
            parts.push_back({source, source->find(name)});
            if (parts.back().tensor < 0)
                refuse(source->model_file().path(), "has no `{}`, which another rank has", name);
            if (source->tensors().size() != tensors.size())
                refuse(source->model_file().path(), "has {} tensors, but {} has {}",
                       source->tensors().size(), parts_[first]->model_file().path(),
                       tensors.size());
        }
        add_parts(parts);
    }
}

void DeepSpeedSplit::take_counts() {
    about_ = *parts_.front()->checkpoint();
    about_.tensors.clear();
    stage_ = about_.zero_stage;
    about_.world_size *= static_cast<int>(parts_.size());
    for (const auto& part : parts_) {
        const Checkpoint& other = *part->checkpoint();
        if (about_.states.empty()) about_.states = other.states, about_.optimizer = other.optimizer;
        for (const std::string& note : part->notes())
            if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
    }
    writer_ = fmt::format("DeepSpeed {}, ZeRO stage {}, {} ranks", about_.version, stage_,
                          about_.world_size);
    const int64_t stages = std::ssize(parts_) / tensor_ranks_;
    if (tensor_ranks_ > 1) writer_ += fmt::format(", {} tensor ranks", tensor_ranks_);
    if (stages > 1) writer_ += fmt::format(", {} pipeline stages", stages);
}

void DeepSpeedSplit::add_parts(const std::vector<Part>& parts) {
    CheckpointTensor tensor = parts.front().about();
    if (const auto place = places_.find(tensor.name); place != places_.end()) {
        // The parameter is tied: several pipeline stages have it.
        const auto at = static_cast<size_t>(place->second);
        const auto is_same = [&](size_t k) {
            const int64_t width = dtype_bytes(dtype_of(tensor, static_cast<int>(k) - 1));
            const Range whole{0, about_.tensors[at].numel()};
            return same_bytes(slice(parts.front().chunks()[k], whole, width), chunks_[at][k]);
        };
        if (parts.size() == 1 && !(is_same(0) && is_same(1) && is_same(2) && is_same(3)))
            notes_.push_back(
                fmt::format("`{}` differs between the pipeline stages that share it: the value of "
                            "the first stage is used",
                            printable(tensor.name)));
        return;
    }
    TensorChunks chunks = parts.front().chunks();
    if (parts.size() > 1 && tensor.kind == TensorKind::kBuffer) {
        const auto same = [&](const Part& part) { return same_bytes(part.chunks()[0], chunks[0]); };
        if (!std::ranges::all_of(parts, same))
            notes_.push_back(fmt::format(
                "the buffer `{}` differs between tensor ranks: the value of rank 0 is used",
                printable(tensor.name)));
    } else if (parts.size() > 1) {
        std::vector<std::vector<int64_t>> shapes;
        for (const Part& part : parts) {
            shapes.push_back(part.about().shape);
            if (part.about().kind != tensor.kind || part.about().dtype != tensor.dtype ||
                part.about().updates != tensor.updates)
                refuse(part.source->model_file().path(),
                       "`{}` has another kind, type or number of updates than on rank 0",
                       tensor.name);
        }
        const Joining joining = rules_->of(tensor.name, shapes);
        tensor.shape = joining.shape;
        chunks = join(parts, joining);
    } else if (tensor.kind != TensorKind::kBuffer) {
        remove_padding(tensor, chunks, rules_->vocabulary_rows(tensor.name));
    }
    const std::vector<std::string> aliases = tensor.aliases;
    const auto index = static_cast<int>(about_.tensors.size());
    add(std::move(tensor), std::move(chunks));
    for (const std::string& alias : aliases) places_.emplace(alias, index);
}

TensorChunks DeepSpeedSplit::join(const std::vector<Part>& parts, const Joining& joining) {
    const CheckpointTensor& about = parts.front().about();
    if (joining.kind == Joining::Kind::kRuns) return join_runs(parts, joining);
    if (joining.kind == Joining::Kind::kReplicated) {
        for (const Part& part : parts)
            if (!same_bytes(part.chunks()[0], parts.front().chunks()[0]))
                refuse(part.source->model_file().path(),
                       "its `{}` differs from rank 0's, though each tensor rank should have the "
                       "same: the files are from different saves, or the ranks drifted apart",
                       about.name);
        return first_rows(about, parts.front().chunks(), numel_of(joining.shape));
    }
    if (joining.kind == Joining::Kind::kAverage)
        return first_rows(about, mean_of(parts), numel_of(joining.shape));
    TensorChunks chunks;
    for (size_t k = 0; k < chunks.size(); ++k) {
        if (parts.front().chunks()[k].empty()) continue;
        const int64_t width = dtype_bytes(dtype_of(about, static_cast<int>(k) - 1));
        for (int64_t o = 0; o < joining.outer; ++o)
            for (const Joining::Piece& piece : joining.pieces) {
                const Range elements{(o * joining.widths[piece.rank] + piece.begin) * joining.inner,
                                     piece.width * joining.inner};
                for (const Span& span : slice(parts[piece.rank].chunks()[k], elements, width))
                    chunks[k].push_back(span);
            }
        chunks[k] = slice(chunks[k], {0, numel_of(joining.shape)}, width);
    }
    return chunks;
}

TensorChunks DeepSpeedSplit::join_runs(const std::vector<Part>& parts, const Joining& joining) {
    const CheckpointTensor& about = parts.front().about();
    TensorChunks chunks;
    for (size_t k = 0; k < chunks.size(); ++k) {
        if (parts.front().chunks()[k].empty()) continue;
        const int64_t width = dtype_bytes(dtype_of(about, static_cast<int>(k) - 1));
        const auto elements_of = [&](const Joining::Run& run) {
            return slice(parts[run.rank].chunks()[k], {run.begin, run.numel}, width);
        };
        for (const Joining::Run& run : joining.runs)
            for (const Span& span : elements_of(run)) chunks[k].push_back(span);
        for (const auto& [first, second] : joining.copies)
            if (!same_bytes(elements_of(first), elements_of(second)))
                refuse(parts[second.rank].source->model_file().path(),
                       "its `{}` differs from rank {}'s, though both should have the same: the "
                       "files are from different saves, or the ranks drifted apart",
                       about.name, first.rank);
    }
    return first_rows(about, std::move(chunks), numel_of(joining.shape));
}

TensorChunks DeepSpeedSplit::mean_of(const std::vector<Part>& parts) {
    const CheckpointTensor& about = parts.front().about();
    if (about.dtype != DType::kF32)
        refuse(folder_, "`{}` must be the mean of the tensor ranks, but its values are not fp32",
               about.name);
    TensorChunks chunks;
    for (size_t k = 0; k < chunks.size(); ++k) {
        if (parts.front().chunks()[k].empty()) continue;
        std::vector<float>& sum = made_.emplace_back(static_cast<size_t>(about.numel()), 0.0F);
        for (const Part& part : parts) {
            size_t at = 0;
            for (const Span& span : part.chunks()[k])
                for (size_t i = 0; i + sizeof(float) <= span.size(); i += sizeof(float)) {
                    float value = 0;
                    std::memcpy(&value, span.data() + i, sizeof value);
                    if (at < sum.size()) sum[at++] += value;
                }
        }
        for (float& value : sum) value /= static_cast<float>(parts.size());
        chunks[k] = {std::as_bytes(std::span(sum))};
    }
    return chunks;
}

// Returns true if the parameter LOCAL of LAYER is tied to parameters of other layers. This is so if
// a rank has a parameter named LOCAL in tied_modules whose fp32 weights equal TENSOR after
// rounding; TENSOR is the value in LAYER's file. Throws if only the name and shape agree.
bool DeepSpeedSplit::is_tied(const SplitFiles::Layer& layer, const std::string& local,
                             const TorchTensor& tensor) const {
    bool has_name = false;
    const auto tensor_ranks = static_cast<size_t>(tensor_ranks_);
    for (size_t rank = static_cast<size_t>(layer.tensor_rank); rank < parts_.size();
         rank += tensor_ranks)
        for (size_t t = 0; t < parts_[rank]->tensors().size(); ++t) {
            const CheckpointTensor& about = parts_[rank]->tensors()[t];
            if (!about.name.starts_with("tied_modules.") || !about.name.ends_with("." + local) ||
                about.shape != tensor.shape)
                continue;
            has_name = true;
            if (about.dtype == DType::kF32 &&
                rounds_to(parts_[rank]->chunks(static_cast<int>(t))[0], tensor))
                return true;
        }
    if (has_name)
        refuse(layer.path,
               "its `{0}` has the name and shape of a tied parameter, but differs from the "
               "optimizer's master weights of the tied parameter, rounded to the same type: files "
               "from different saves are mixed, or `{0}` is a frozen parameter, which is not "
               "supported here",
               local);
    return false;
}

bool DeepSpeedSplit::is_listed(const char* list, const std::string& name) const {
    return std::ranges::any_of(parts_, [&](const auto& part) {
        const PickleValue* const names = part->value_of(list);
        if (names == nullptr) return false;
        if (names->kind == PickleValue::Kind::kDict) return names->find(name) != nullptr;
        return std::ranges::any_of(names->items,
                                   [&](const PickleValue* one) { return one->text == name; });
    });
}

// Compares the weights in LAYER's file with the ranks' weights, and takes the buffers and frozen
// parameters from the file. Names in the file lack the number of the layer.
void DeepSpeedSplit::add_layer(const SplitFiles::Layer& layer) {
    const TorchFile& file = *layers_.emplace_back(std::make_unique<TorchFile>(layer.path));
    const auto& items = file.root().items;
    if (file.root().kind != PickleValue::Kind::kDict)
        refuse(layer.path, "is not a layer's state_dict");
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
        const std::string& local = items[i]->text;
        const std::string name = fmt::format("{}.{}", layer.layer, local);
        TorchTensor tensor = file.tensor(items[i + 1], name);
        const auto place = places_.find(name);
        if (place == places_.end()) {
            add_other(layer, local, tensor);
            continue;
        }
        const auto at = static_cast<size_t>(place->second);
        const CheckpointTensor& about = about_.tensors[at];
        if (tensor_ranks_ > 1 || about.dtype != DType::kF32 || about.kind != TensorKind::kTrained)
            continue;
        if (!has_weights(at, std::move(tensor), rules_->vocabulary_rows(name) >= 0))
            refuse(layer.path,
                   "its `{}` differs from the optimizer's master weights, rounded to the same "
                   "type: files from different saves are mixed, or the module was changed "
                   "before it was saved",
                   local);
    }
}

// Takes a buffer or a frozen parameter from the file of LAYER. Below stage 2, DeepSpeed does not
// list frozen parameters. Unless the files of all ranks exist, they can then not be told from
// trained parameters.
void DeepSpeedSplit::add_other(const SplitFiles::Layer& layer, const std::string& local,
                               const TorchTensor& tensor) {
    const std::string name = fmt::format("{}.{}", layer.layer, local);
    if (is_listed("buffer_names", name)) {
        if (layer.tensor_rank == 0) add_buffer(name, tensor);
        return;
    }
    if (is_tied(layer, local, tensor)) return;
    const PickleValue* const frozen = parts_.front()->value_of("frozen_param_shapes");
    const bool has_list = frozen != nullptr && frozen->kind == PickleValue::Kind::kDict;
    const int64_t wrote = integer_or(parts_.front()->value_of("mp_world_size"), 0);
    if (has_list ? !is_listed("frozen_param_shapes", name) : wrote != std::ssize(parts_))
        refuse(layer.path,
               "its `{}` is neither trained by a rank, nor frozen, nor a buffer: files of a rank "
               "are missing",
               local);
    if (tensor_ranks_ > 1)
        refuse(layer.path,
               "its `{}` is frozen, which is not supported in a pipeline whose layers several "
               "tensor ranks share",
               local);
    add_buffer(name, tensor);
    about_.tensors.back().kind = TensorKind::kFrozen;
}

// Refuses a pipeline if the file of one of its layers is missing.
void DeepSpeedSplit::check_layers(const std::vector<SplitFiles::Layer>& layers) const {
    std::map<int64_t, int64_t> counts;
    for (const SplitFiles::Layer& layer : layers) ++counts[layer.layer];
    const auto check = [&](const std::string& name) {
        std::string_view rest;
        const int64_t layer = number_after(name, "", rest);
        if (layer < 0 || !rest.starts_with('.')) return;
        const auto found = counts.find(layer);
        if (found == counts.end() || found->second != tensor_ranks_)
            refuse(folder_,
                   "`{}` is in layer {}, but the folder has {} of {} files of this layer "
                   "(layer_{:02}-*model_states.pt): the checkpoint is incomplete",
                   name, layer, found == counts.end() ? 0 : found->second, tensor_ranks_, layer);
        if (!places_.contains(name))
            refuse(folder_,
                   "the files of the layer of `{}` do not contain this tensor: the checkpoint is "
                   "incomplete",
                   name);
    };
    for (const auto& part : parts_) {
        for (const CheckpointTensor& tensor : part->tensors()) check(tensor.name);
        if (const PickleValue* names = part->value_of("buffer_names"))
            for (const PickleValue* name : names->items) check(name->text);
    }
}

}  // namespace dslaunch::storage
