#include "storage/checkpoint/shard_header.h"

#include <set>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::storage {
namespace {

const CheckpointTensor& tensor_of(const Checkpoint& checkpoint, const CheckpointPiece& piece) {
    DSL_CHECK(piece.tensor >= 0 && piece.tensor < std::ssize(checkpoint.tensors), "tensor {}",
              piece.tensor);
    return checkpoint.tensors[piece.tensor];
}

bool is_row_major(const CheckpointTensor& tensor) {
    int64_t next = 1;
    for (size_t i = tensor.strides.size(); i > 0; --i) {
        if (tensor.shape[i - 1] > 1 && tensor.strides[i - 1] != next) return false;
        next *= tensor.shape[i - 1];
    }
    return true;
}

// Returns the shape to write. A whole tensor keeps its shape, and whole rows of a tensor keep the
// other dimensions. All else is written as one dimension.
std::vector<int64_t> shape_of(const CheckpointTensor& tensor, int state, const Range& elements) {
    if (!is_row_major(tensor) || !tensor.is_like_tensor(state)) return {elements.numel};
    if (elements == Range{0, tensor.numel()}) return tensor.shape;
    if (tensor.shape.empty() || tensor.numel() == 0) return {elements.numel};
    const int64_t row = tensor.numel() / tensor.shape[0];
    if (elements.begin % row != 0 || elements.numel % row != 0) return {elements.numel};
    std::vector<int64_t> shape = tensor.shape;
    shape[0] = elements.numel / row;
    return shape;
}

void check_utf8(const std::string& name) {
    for (size_t i = 0; i < name.size();) {
        const size_t length = utf8_length(name, i);
        if (length == 0)
            fail(ExitCode::kCheckpoint,
                 "tensor '{}': its name is not UTF-8, which a checkpoint requires: rename the "
                 "tensor",
                 printable(name));
        i += length;
    }
}

// Returns NAME or NAME.STATE, with @RANK for the buffer of one rank, and with [BEGIN:END] unless
// the piece is the whole tensor in row-major order. Adds ~2, ~3, … if the name is already in TAKEN.
std::string entry_name(const Checkpoint& checkpoint, const CheckpointPiece& piece,
                       std::set<std::string>& taken) {
    const CheckpointTensor& tensor = tensor_of(checkpoint, piece);
    std::string name = tensor.name;
    check_utf8(name);
    if (tensor.kind == TensorKind::kRankBuffer) name += fmt::format("@{}", tensor.rank);
    if (piece.state != kWeights)
        name += fmt::format(".{}", checkpoint.states.at(static_cast<size_t>(piece.state)));
    const bool in_order = is_row_major(tensor) || !tensor.is_like_tensor(piece.state);
    if (piece.elements != Range{0, tensor.numel_of(piece.state)} || !in_order)
        name += fmt::format("[{}:{}]", piece.elements.begin, piece.elements.end());
    std::string fresh = name;
    for (int i = 2; !taken.insert(fresh).second; ++i) fresh = fmt::format("{}~{}", name, i);
    return fresh;
}

}  // namespace

DType piece_dtype(const Checkpoint& checkpoint, const CheckpointPiece& piece) {
    return piece.state == kWeights ? tensor_of(checkpoint, piece).dtype : DType::kF32;
}

int64_t piece_bytes(const Checkpoint& checkpoint, const CheckpointPiece& piece) {
    return piece.elements.numel * dtype_bytes(piece_dtype(checkpoint, piece));
}

std::string shard_header(const ShardPlan& plan, const Checkpoint& checkpoint) {
    JsonWriter json;
    json.begin_object().key("__metadata__").begin_object();
    json.field("format", "pt").field("checkpoint", checkpoint.id);
    json.field("step", std::to_string(checkpoint.training.step));
    json.field("format_version", std::to_string(checkpoint.format)).end_object();
    std::set<std::string> taken{"__metadata__"};
    int64_t end = 0;
    for (const CheckpointPiece& piece : plan.pieces) {
        json.key(entry_name(checkpoint, piece, taken)).begin_object();
        json.field("dtype", dtype_name(piece_dtype(checkpoint, piece))).key("shape").begin_array();
        for (const int64_t extent :
             shape_of(tensor_of(checkpoint, piece), piece.state, piece.elements))
            json.value(extent);
        const int64_t begin = std::exchange(end, end + piece_bytes(checkpoint, piece));
        json.end_array().key("data_offsets").begin_array().value(begin).value(end).end_array();
        json.end_object();
    }
    std::string text = json.end_object().text();
    const auto whole = round_up(static_cast<int64_t>(text.size()) + 8, kDataAlignment);
    text.resize(static_cast<size_t>(whole) - 8, ' ');
    std::string header;
    for (uint64_t i = 0, length = text.size(); i < 8; ++i)
        header += static_cast<char>(length >> (8 * i));
    return header + text;
}

}  // namespace dslaunch::storage
