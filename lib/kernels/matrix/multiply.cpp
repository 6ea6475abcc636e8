#include "kernels/matrix/multiply.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/matrix/matrix_tables.h"

namespace dslaunch::kernels {
namespace {

// Returns true for the forms whose products use activations rounded to int8.
bool rounds(MatrixForm form) {
    return form == MatrixForm::kInt8 || form == MatrixForm::kInt4;
}

// Returns true for the forms whose products use each activation as the sum of two bf16 numbers.
bool splits(MatrixForm form, MatrixIsa isa) {
    return form == MatrixForm::kBf16 && matrix_kernels_of(isa).split_rows != nullptr;
}

template <typename T>
void grow(std::vector<T>& values, int64_t numel) {
    if (std::ssize(values) < numel) values.resize(static_cast<size_t>(numel));
}

ProductPart part_of(const Product& product, const Activations& activations) {
    const MatrixShape& shape = product.matrix.shape;
    const ActivationRows& x = activations.rows();
    ProductPart part{};
    part.codes = product.matrix.data;
    part.in = shape.in;
    part.out = shape.out;
    part.group = shape.group;
    if (is_packed(shape.form)) {
        const PackedLayout layout = packed_layout(shape);
        part.groups = layout.groups;
        part.scales = product.matrix.data + layout.scales_offset();
        part.factors =
            reinterpret_cast<const float*>(product.matrix.data + layout.factors_offset());
    }
    part.rows = x.rows;
    part.x = x.data;
    part.x_stride = x.stride;
    part.x_codes = activations.codes();
    part.x_scales = activations.scales();
    part.x_offsets = activations.offsets();
    part.x_scaled_sums = activations.scaled_sums();
    part.x_halves = activations.halves();
    part.y = product.y;
    part.y_stride = product.stride;
    part.bias = product.bias;
    part.adds = product.adds;
    return part;
}

// Limits on the number of panels that a thread takes at once. A thread takes panels at least
// kChunksAThread times, so that all threads finish at about the same time. It takes at most
// kChunkBytes at once. With more than kManyRows rows, it instead takes at least kPanelsTogether
// panels, so that one read of the rows serves all of them.
constexpr int64_t kChunkBytes = int64_t{2048} * 1024;
constexpr int64_t kChunksAThread = 4;
constexpr int64_t kManyRows = 16;
constexpr int64_t kPanelsTogether = 4;

struct Cut {
    int64_t panels = 0;
    int64_t step = 0;  // panels of a chunk
    int64_t chunks = 0;
};

Cut cut_of(const MatrixShape& shape, int64_t rows, int threads) {
    Cut cut;
    cut.panels = (shape.out + kPanelOutputs - 1) / kPanelOutputs;
    const int64_t bytes = std::max<int64_t>(1, matrix_bytes(shape) / cut.panels);
    const int64_t even = cut.panels / (threads * kChunksAThread);
    const int64_t most = rows > kManyRows ? kOutputsTogether / kPanelOutputs : kChunkBytes / bytes;
    const int64_t least = rows > kManyRows ? kPanelsTogether : 1;
    cut.step = std::clamp<int64_t>(even, least, std::max<int64_t>(least, most));
    cut.chunks = (cut.panels + cut.step - 1) / cut.step;
    return cut;
}

void check_product(const Product& product, const Activations& activations) {
    const MatrixShape& shape = product.matrix.shape;
    DSL_CHECK(activations.serves(shape),
              "activations with {} inputs do not fit a matrix with {} inputs in the form {}",
              activations.rows().in, shape.in, matrix_form_name(shape.form));
    DSL_CHECK(product.stride >= shape.out,
              "rows of y are {} elements apart, but need {} for all outputs", product.stride,
              shape.out);
}

}  // namespace

void Activations::assign(const ActivationRows& x, const MatrixShape& shape, ThreadTeam& team,
                         MatrixIsa isa) {
    DSL_CHECK(x.rows >= 0 && x.in == shape.in && x.stride >= x.in,
              "{} rows of {} inputs, {} apart, do not fit a matrix with {} inputs", x.rows, x.in,
              x.stride, shape.in);
    x_ = x;
    isa_ = isa;
    splits_ = splits(shape.form, isa);
    group_ = rounds(shape.form) ? shape.group : 0;
    groups_ = group_ == 0 ? 0 : (x.in + group_ - 1) / group_;
    if (splits_) split(team);
    if (group_ != 0) round(team);
}

void Activations::split(ThreadTeam& team) {
    const auto split_rows = matrix_kernels_of(isa_).split_rows;
    const int64_t row_numel = 2 * ((x_.in + kTileInputs - 1) / kTileInputs * kTileInputs);
    grow(halves_, x_.rows * row_numel);
    team.for_chunks((x_.rows + kTileRowsMax - 1) / kTileRowsMax, [&](int64_t block) {
        const int64_t row = block * kTileRowsMax;
        split_rows(x_.data + row * x_.stride, x_.stride, x_.in,
                   std::min(kTileRowsMax, x_.rows - row), halves_.data() + row * row_numel);
    });
}

void Activations::round(ThreadTeam& team) {
    const ActivationRows& x = x_;
    const int64_t blocks = (x.rows + kRoundedRows - 1) / kRoundedRows;
    const int64_t numel = blocks * kRoundedRows * groups_;
    grow(codes_, numel * group_);
    grow(scales_, numel);
    grow(offsets_, numel);
    grow(scaled_sums_, numel);
    const MatrixKernels& kernels = matrix_kernels_of(isa_);
    team.for_chunks(blocks, [&](int64_t block) {
        for (int64_t i = 0; i < std::min(kRoundedRows, x.rows - block * kRoundedRows); ++i) {
            const int64_t first = block * kRoundedRows * groups_;
            kernels.round_row(x.data + (block * kRoundedRows + i) * x.stride, x.in, group_,
                              {codes_.data() + first * group_ + i * 4, scales_.data() + first + i,
                               offsets_.data() + first + i, scaled_sums_.data() + first + i});
        }
    });
}

bool Activations::serves(const MatrixShape& shape) const {
    return x_.in == shape.in && group_ == (rounds(shape.form) ? shape.group : 0) &&
           (splits_ || !splits(shape.form, isa_));
}

void multiply(std::span<const Product> products, const Activations& activations, ThreadTeam& team) {
    int64_t chunks = 0;
    for (const Product& product : products) {
        check_product(product, activations);
        chunks += cut_of(product.matrix.shape, activations.rows().rows, team.threads()).chunks;
    }
    const MatrixKernels& kernels = matrix_kernels_of(activations.isa());
    team.for_chunks(chunks, [&](int64_t chunk) {
        for (const Product& product : products) {
            const MatrixShape& shape = product.matrix.shape;
            const Cut cut = cut_of(shape, activations.rows().rows, team.threads());
            if (chunk < cut.chunks) {
                ProductPart part = part_of(product, activations);
                part.begin = chunk * cut.step * kPanelOutputs;
                part.end = std::min(shape.out, part.begin + cut.step * kPanelOutputs);
                return kernels.multiply[static_cast<size_t>(shape.form)](part);
            }
            chunk -= cut.chunks;
        }
    });
}

}  // namespace dslaunch::kernels
