#include "storage/foreign/deepspeed_split.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

namespace fs = std::filesystem;
using Span = std::span<const std::byte>;

constexpr int64_t kRanksMax = 65'536;

// Returns the digits of NAME after PREFIX as a number, and sets REST to the text after them; -1 if
// NAME does not begin so.
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
        refuse(folder, "has files of {} model ranks, which {} tensor ranks cannot share evenly",
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
    take_counts();
    rules_ = std::make_unique<SplitRules>(parts_.front()->model_file(),
                                          parts_.front()->value_of("universal_checkpoint_info"),
                                          static_cast<size_t>(tensor_ranks_));
    for (size_t first = 0; first < parts_.size(); first += static_cast<size_t>(tensor_ranks_))
        for (size_t t = 0; t < parts_[first]->tensors().size(); ++t) {
            std::vector<Part> parts;
            const std::string& name = parts_[first]->tensors()[t].name;
            for (size_t rank = 0; rank < static_cast<size_t>(tensor_ranks_); ++rank) {
                const DeepSpeedSource* const source = parts_[first + rank].get();
                parts.push_back({source, source->find(name)});
                if (parts.back().tensor < 0)
                    refuse(source->model_file().path(), "has no `{}`, which another rank has",
                           name);
            }
            add_parts(parts);
        }
    for (const SplitFiles::Layer& layer : files.layers) add_layer(layer);
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
        // A tied parameter, which several pipeline stages have.
        if (parts.size() == 1 && !same_bytes(parts.front().chunks()[0], chunks_[place->second][0]))
            notes_.push_back(fmt::format(
                "`{}` differs between pipeline stages that share it: the first one's is taken",
                printable(tensor.name)));
        return;
    }
    TensorChunks chunks = parts.front().chunks();
    if (parts.size() > 1 && tensor.kind == TensorKind::kBuffer) {
        const auto same = [&](const Part& part) { return same_bytes(part.chunks()[0], chunks[0]); };
        if (!std::ranges::all_of(parts, same))
            notes_.push_back(
                fmt::format("the buffer `{}` differs between tensor ranks: rank 0's is taken",
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
    }
    const std::vector<std::string> aliases = tensor.aliases;
    const auto index = static_cast<int>(about_.tensors.size());
    add(std::move(tensor), std::move(chunks));
    for (const std::string& alias : aliases) places_.emplace(alias, index);
}

TensorChunks DeepSpeedSplit::join(const std::vector<Part>& parts, const Joining& joining) {
    const CheckpointTensor& about = parts.front().about();
    if (joining.kind == Joining::Kind::kReplicated) {
        for (const Part& part : parts)
            if (!same_bytes(part.chunks()[0], parts.front().chunks()[0]))
                refuse(part.source->model_file().path(),
                       "its `{}` differs from rank 0's, though each tensor rank should have the "
                       "same: the files are from different saves, or the ranks drifted apart",
                       about.name);
        return parts.front().chunks();
    }
    if (joining.kind == Joining::Kind::kAverage) return mean_of(parts);
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

TensorChunks DeepSpeedSplit::mean_of(const std::vector<Part>& parts) {
    const CheckpointTensor& about = parts.front().about();
    if (about.dtype != DType::kF32)
        refuse(folder_, "the mean of `{}` over the tensor ranks needs fp32", about.name);
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

// Returns true if a layer's LOCAL parameter is one that several layers share.
bool DeepSpeedSplit::is_tied(const std::string& local, const TorchTensor& tensor) const {
    return std::ranges::any_of(places_, [&](const auto& place) {
        const CheckpointTensor& about = about_.tensors[static_cast<size_t>(place.second)];
        return place.first.starts_with("tied_modules.") && place.first.ends_with("." + local) &&
               (tensor_ranks_ > 1 || about.shape == tensor.shape);
    });
}

// Compares the file's weights with the ranks' weights, and takes the buffers and frozen parameters
// from it. A layer's parameters have names within the layer there.
void DeepSpeedSplit::add_layer(const SplitFiles::Layer& layer) {
    const TorchFile& file = *layers_.emplace_back(std::make_unique<TorchFile>(layer.path));
    const auto& items = file.root().items;
    if (file.root().kind != PickleValue::Kind::kDict)
        refuse(layer.path, "is not a layer's state_dict");
    std::set<std::string> buffers;
    for (const auto& part : parts_)
        if (const PickleValue* names = part->value_of("buffer_names"))
            for (const PickleValue* name : names->items) buffers.insert(name->text);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
        const std::string& local = items[i]->text;
        const std::string name = fmt::format("{}.{}", layer.layer, local);
        const TorchTensor tensor = file.tensor(items[i + 1], name);
        const auto place = places_.find(name);
        if (place != places_.end()) {
            const auto at = static_cast<size_t>(place->second);
            const bool is_whole = tensor_ranks_ == 1 && about_.tensors[at].dtype == DType::kF32;
            if (is_whole && about_.tensors[at].kind == TensorKind::kTrained &&
                !rounds_to(chunks_[at][0], tensor))
                refuse(layer.path,
                       "its `{}` does not match the optimizer's rounded weights: files from "
                       "different saves are mixed, or the module was changed before it was saved",
                       local);
            continue;
        }
        if (layer.tensor_rank > 0 || is_tied(local, tensor)) continue;
        add_buffer(name, tensor);
        if (!buffers.contains(name)) about_.tensors.back().kind = TensorKind::kFrozen;
    }
}

}  // namespace dslaunch::storage
