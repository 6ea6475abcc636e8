
#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kStatesMax = 1024;
constexpr size_t kDimensionsMax = 64;

template <typename... Args>
[[noreturn]] void inconsistent(fmt::format_string<Args...> format, Args&&... args) {
    throw Error(ExitCode::kCheckpoint, printable(fmt::format(format, std::forward<Args>(args)...)));
}

// Checks that the numbers of elements and of bytes fit an int64. A dimension of 0 makes the whole
// tensor empty.
void check_shape(std::string_view name, const std::vector<int64_t>& shape) {
    if (shape.size() > kDimensionsMax)
        inconsistent("tensor '{}': it has too many dimensions", name);
    int64_t bytes = 8;  // the longest element
    for (const int64_t extent : shape)
        if (extent < 0 || (extent > 0 && __builtin_mul_overflow(bytes, extent, &bytes)))
            inconsistent("tensor '{}': its shape is negative or too large", name);
}

// Checks that all elements of a view are elements of its tensor.
void check_view(const CheckpointTensor& tensor, const CheckpointView& view) {
    check_shape(view.name, view.shape);
    if (view.strides.size() != view.shape.size())
        inconsistent("view '{}': it has {} strides, but {} dimensions", view.name,
                     view.strides.size(), view.shape.size());
    int64_t last = view.offset;
    bool fits = last >= 0;
    for (size_t i = 0; fits && i < view.shape.size(); ++i) {
        int64_t way = 0;
        fits = view.strides[i] >= 0 &&
               !__builtin_mul_overflow(view.strides[i], view.shape[i] - 1, &way) &&
               !__builtin_add_overflow(last, way, &last);
    }
    if (view.numel() == 0 || !fits || last >= tensor.numel())
        inconsistent("view '{}': it reaches beyond tensor '{}'", view.name, tensor.name);
}

// Checks that the elements leave no gaps in memory and do not overlap.
void check_strides(const CheckpointTensor& tensor) {
    if (tensor.strides.empty() || tensor.numel() == 0) return;
    if (tensor.strides.size() != tensor.shape.size())
        inconsistent("tensor '{}': it has {} strides, but {} dimensions", tensor.name,
                     tensor.strides.size(), tensor.shape.size());
    std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride, extent
    for (size_t i = 0; i < tensor.shape.size(); ++i)
        if (tensor.shape[i] > 1) dimensions.emplace_back(tensor.strides[i], tensor.shape[i]);
    std::sort(dimensions.begin(), dimensions.end());
    int64_t next = 1;
    for (const auto& [stride, extent] : dimensions) {
        if (stride != next)
            inconsistent("tensor '{}': its strides leave gaps or overlap", tensor.name);
        next *= extent;
    }
}

void check_piece(const Checkpoint& checkpoint, const CheckpointFile& file,
                 const WrittenPiece& written) {
    const CheckpointPiece& piece = written.piece;
    if (piece.tensor < 0 || piece.tensor >= std::ssize(checkpoint.tensors))
        inconsistent("file '{}': a piece belongs to tensor {}, but there are only {} tensors",
                     file.name, piece.tensor, checkpoint.tensors.size());
    const CheckpointTensor& tensor = checkpoint.tensors[piece.tensor];
    const bool has_states = tensor.kind == TensorKind::kTrained;
    if (piece.state < kWeights || piece.state >= std::ssize(checkpoint.states) ||
        (piece.state != kWeights && !has_states))
        inconsistent("file '{}': tensor '{}' has no state {}", file.name, tensor.name, piece.state);
    const Range& elements = piece.elements;
    const int64_t numel = tensor.numel_of(piece.state);
    if (elements.begin < 0 || elements.numel < 0 || elements.begin > numel ||
        elements.numel > numel - elements.begin)
        inconsistent(
            "file '{}': tensor '{}': a piece has {} elements from element {} on, but the tensor "
            "has only {} elements",
            file.name, tensor.name, elements.numel, elements.begin, numel);
}

// Checks that the pieces cover the file without gaps from the end of the header to the end of the
// file.
void check_file(const Checkpoint& checkpoint, const CheckpointFile& file) {
    if (!is_file_name(file.name))
        inconsistent("file '{}': this is not a valid file name", file.name);
    int64_t next = file.pieces.empty() ? file.bytes : file.pieces.front().offset_bytes;
    if (next < 8 || next > file.bytes)
        inconsistent("file '{}': it has no room for its header", file.name);
    for (const WrittenPiece& piece : file.pieces) {
        check_piece(checkpoint, file, piece);
        if (piece.offset_bytes != next)
            inconsistent("file '{}': a piece begins at byte {}, expected byte {}", file.name,
                         piece.offset_bytes, next);
        const CheckpointTensor& tensor = checkpoint.tensors[piece.piece.tensor];
        const DType dtype = piece.piece.state == kWeights ? tensor.dtype : DType::kF32;
        const int64_t bytes = piece.piece.elements.numel * dtype_bytes(dtype);
        if (bytes > file.bytes - next)
            inconsistent("file '{}': its pieces do not fit in it", file.name);
        next += bytes;
    }
    if (next != file.bytes)
        inconsistent("file '{}': its pieces end at byte {}, but it has {} bytes", file.name, next,
                     file.bytes);
}

std::string name_of(const Checkpoint& checkpoint, size_t tensor, int state) {
    const std::string& name = checkpoint.tensors[tensor].name;
    return state == kWeights ? name : fmt::format("{}.{}", name, checkpoint.states[state]);
}

void check_tiling(const Checkpoint& checkpoint) {
    std::vector<std::tuple<size_t, int, int64_t, int64_t>> pieces;  // tensor, state, begin, numel
    for (const CheckpointFile& file : checkpoint.files)
        for (const auto& [piece, offset, hash, finite] : file.pieces)
            if (piece.elements.numel > 0)
                pieces.emplace_back(static_cast<size_t>(piece.tensor), piece.state,
                                    piece.elements.begin, piece.elements.numel);
    std::sort(pieces.begin(), pieces.end());
    auto at = pieces.begin();
    for (size_t tensor = 0; tensor < checkpoint.tensors.size(); ++tensor) {
        const CheckpointTensor& about = checkpoint.tensors[tensor];
        const int states = about.kind == TensorKind::kTrained && about.numel() > 0
                               ? static_cast<int>(checkpoint.states.size())
                               : 0;
        for (int state = kWeights; state < states; ++state) {
            int64_t next = 0;
            for (; at != pieces.end() && std::get<0>(*at) == tensor && std::get<1>(*at) == state;
                 ++at) {
                if (std::get<2>(*at) != next)
                    inconsistent("tensor '{}': its pieces leave a gap or overlap at element {}",
                                 name_of(checkpoint, tensor, state), next);
                next += std::get<3>(*at);
            }
            if (next != about.numel_of(state))
                inconsistent("tensor '{}': its pieces end at element {}, but it has {} elements",
                             name_of(checkpoint, tensor, state), next, about.numel_of(state));
        }
    }
}

}  // namespace

bool is_file_name(std::string_view name) {
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-';
    };
    return !name.empty() && name.size() <= 255 && name[0] != '.' && name != kManifestName &&
           name != kVerifiedName && std::all_of(name.begin(), name.end(), fits);
}

void check_tensors(const Checkpoint& checkpoint) {
    std::set<std::string_view> names;
    std::set<std::pair<std::string_view, int>> rank_names;
    for (const CheckpointTensor& tensor : checkpoint.tensors) {
        const bool of_rank = tensor.kind == TensorKind::kRankBuffer;
        bool fresh = of_rank ? rank_names.emplace(tensor.name, tensor.rank).second
                             : names.insert(tensor.name).second;
        for (const std::string& alias : tensor.aliases)
            fresh = !of_rank && names.insert(alias).second && fresh;
        for (const CheckpointView& view : tensor.views)
            fresh = !of_rank && names.insert(view.name).second && fresh;
        if (!fresh) inconsistent("tensor '{}': its name or an alias appears twice", tensor.name);
        if (of_rank && tensor.rank >= checkpoint.world_size)
            inconsistent("tensor '{}': it belongs to rank {}, but there are only {} ranks",
                         tensor.name, tensor.rank, checkpoint.world_size);
        check_shape(tensor.name, tensor.shape);
        check_strides(tensor);
        for (const CheckpointView& view : tensor.views) check_view(tensor, view);
        if (tensor.state_numel.size() > checkpoint.states.size())
            inconsistent(
                "tensor '{}': it has sizes for {} states, but the checkpoint has {} states",
                tensor.name, tensor.state_numel.size(), checkpoint.states.size());
    }
}

void check_checkpoint(const Checkpoint& checkpoint) {
    const std::set<std::string_view> states(checkpoint.states.begin(), checkpoint.states.end());
    if (states.size() != checkpoint.states.size() || states.size() > kStatesMax)
        inconsistent("states: a state appears twice, or there are more than {} states", kStatesMax);
    check_tensors(checkpoint);
    std::set<std::string_view> names;
    for (const CheckpointFile& file : checkpoint.files) {
        if (!names.insert(file.name).second) inconsistent("file '{}': it appears twice", file.name);
        check_file(checkpoint, file);
    }
    check_tiling(checkpoint);
}

}  // namespace dslaunch::storage
