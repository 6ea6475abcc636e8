#include "kernels/matrix/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/half_bits.h"
#include "kernels/matrix/matrix_tables.h"

namespace dslaunch::kernels {
namespace {

float widened(const void* from, DType dtype, int64_t i) {
    if (dtype == DType::kF32) return static_cast<const float*>(from)[i];
    const uint16_t half = static_cast<const uint16_t*>(from)[i];
    return dtype == DType::kBF16 ? fp32_of_bf16(half) : fp32_of_fp16(half);
}

// Packs panels, one at a time. The buffers belong to one thread.
class PanelReader {
  public:
    PanelReader(const MatrixShape& shape, const SourceRows& source)
        : shape_(shape),
          source_(source),
          layout_(packed_layout(shape)),
          rows_(static_cast<size_t>(kPanelOutputs * shape.in)),
          scratch_(static_cast<size_t>(layout_.groups * 2 * kPanelOutputs)) {}

    void pack(int64_t panel, std::byte* packed, const MatrixKernels& kernels) {
        PanelSource from{{}, shape_.in, shape_.group, layout_.groups};
        for (int64_t i = 0; i < kPanelOutputs; ++i) {
            const int64_t row = panel * kPanelOutputs + i - source_.rows.begin;
            if (row >= source_.rows.numel) break;
            float* const to = rows_.data() + i * shape_.in;
            for (int64_t k = 0; k < shape_.in; ++k)
                to[k] = widened(source_.data, source_.dtype, row * shape_.in + k);
            from.rows[i] = to;
        }
        const PanelTarget to{reinterpret_cast<uint8_t*>(packed + panel * layout_.panel_code_bytes),
                             packed + layout_.scales_offset() + panel * layout_.panel_scale_bytes,
                             reinterpret_cast<float*>(packed + layout_.factors_offset() +
                                                      panel * layout_.panel_factor_bytes),
                             scratch_.data()};
        if (shape_.form == MatrixForm::kInt8) return kernels.to_int8(from, to);
        if (shape_.form == MatrixForm::kInt4) return kernels.to_int4(from, to);
        kernels.to_nf4(from, to);
    }

  private:
    MatrixShape shape_;
    SourceRows source_;
    PackedLayout layout_;
    std::vector<float> rows_;
    std::vector<float> scratch_;
};

// The addresses at which one row of a packed matrix is stored.
struct PackedRow {
    const uint8_t* codes;  // codes of the row's panel; the next two are also the panel's
    const std::byte* scales;
    const float* factors;
    int64_t lane;  // the row's index in its panel

    template <typename T>
    [[nodiscard]] T scale(int64_t index) const {
        return reinterpret_cast<const T*>(scales)[index];
    }
    // Writes inputs [BEGIN, END), which are in group G, to OUT[BEGIN, END). REQUIRES: BEGIN is a
    // multiple of 32.
    void write(MatrixForm form, int64_t g, int64_t begin, int64_t end, float* out) const {
        if (form == MatrixForm::kInt8) {
            const float step = fp32_of_bf16(scale<uint16_t>(g * 16 + lane));
            for (int64_t k = begin; k < end; k += 4)
                put(step *
                        (__builtin_convertvector(codes_at(codes + k / 4 * 64 + lane * 4), Numbers) -
                         128.0F),
                    end - k, out + k);
        } else if (form == MatrixForm::kNf4) {
            float numbers[16];
            const float scale_of_group = fp32_of_bf16(scale<uint16_t>(g * 16 + lane));
            for (int i = 0; i < 16; ++i) numbers[i] = scale_of_group * kNf4Numbers[i];
            write_nibbles(begin, end, out, [&](const Codes& nibbles) {
                return Numbers{numbers[nibbles[0]], numbers[nibbles[1]], numbers[nibbles[2]],
                               numbers[nibbles[3]]};
            });
        } else {
            const float step = factors[lane] * static_cast<float>(scale<uint8_t>(g * 32 + lane));
            const float low =
                factors[16 + lane] * static_cast<float>(scale<uint8_t>(g * 32 + 16 + lane));
            write_nibbles(begin, end, out, [&](const Codes& nibbles) {
                return step * __builtin_convertvector(nibbles, Numbers) - low;
            });
        }
    }

  private:
    // Four neighbouring inputs, as vector types of GCC and clang, because these compilers do not
    // vectorise loops over bytes of codes.
    using Codes = uint8_t __attribute__((vector_size(4)));
    using Numbers = float __attribute__((vector_size(16)));

    static Codes codes_at(const uint8_t* from) {
        Codes codes;
        std::memcpy(&codes, from, sizeof codes);
        return codes;
    }
    static void put(const Numbers& numbers, int64_t count, float* out) {
        if (count >= 4) {
            std::memcpy(out, &numbers, sizeof numbers);
        } else {
            std::memcpy(out, &numbers, static_cast<size_t>(count) * sizeof(float));
        }
    }
    // Reads codes of 4 bits: the low halves of four bytes hold inputs k to k + 3, and the high
    // halves the next four.
    template <typename Values>
    void write_nibbles(int64_t begin, int64_t end, float* out, Values&& values) const {
        for (int64_t k = begin; k < end; k += 8) {
            const Codes both = codes_at(codes + k / 8 * 64 + lane * 4);
            put(values(both & 0x0F), end - k, out + k);
            if (end - k > 4) put(values(both >> 4), end - k - 4, out + k + 4);
        }
    }
};

PackedRow packed_row(const PackedMatrix& matrix, int64_t row) {
    const PackedLayout layout = packed_layout(matrix.shape);
    const int64_t panel = row / kPanelOutputs;
    return {reinterpret_cast<const uint8_t*>(matrix.data + panel * layout.panel_code_bytes),
            matrix.data + layout.scales_offset() + panel * layout.panel_scale_bytes,
            reinterpret_cast<const float*>(matrix.data + layout.factors_offset() +
                                           panel * layout.panel_factor_bytes),
            row % kPanelOutputs};
}

void widen_row(const PackedMatrix& matrix, int64_t row, float* out) {
    const int64_t in = matrix.shape.in;
    const std::byte* const from =
        matrix.data + row * (matrix_bytes(matrix.shape) / matrix.shape.out);
    const DType dtype = dtype_of(matrix.shape.form);
    for (int64_t k = 0; k < in; ++k) out[k] = widened(from, dtype, k);
}

}  // namespace

void quantize(const MatrixShape& shape, const SourceRows& source, std::span<std::byte> packed,
              ThreadTeam& team, MatrixIsa isa) {
    const Range rows = source.rows;
    DSL_CHECK(is_packed(shape.form) && std::ssize(packed) == matrix_bytes(shape),
              "{} bytes were given for a matrix of {} bytes in the form {}", packed.size(),
              matrix_bytes(shape), matrix_form_name(shape.form));
    DSL_CHECK(rows.begin >= 0 && rows.numel >= 0 && rows.end() <= shape.out &&
                  rows.begin % kPanelOutputs == 0 &&
                  (rows.end() % kPanelOutputs == 0 || rows.end() == shape.out),
              "rows {} to {} do not lie within {} rows, or do not begin and end at a panel",
              rows.begin, rows.end(), shape.out);
    const MatrixKernels& kernels = matrix_kernels_of(isa);
    const int64_t first = rows.begin / kPanelOutputs;
    const int64_t panels = (rows.numel + kPanelOutputs - 1) / kPanelOutputs;
    const int64_t chunks = std::min<int64_t>(panels, int64_t{8} * team.threads());
    team.for_chunks(chunks, [&](int64_t chunk) {
        PanelReader reader(shape, source);
        for (int64_t i = panels * chunk / chunks; i < panels * (chunk + 1) / chunks; ++i)
            reader.pack(first + i, packed.data(), kernels);
    });
}

void dequantize(const PackedMatrix& matrix, Range rows, float* out) {
    const MatrixShape& shape = matrix.shape;
    DSL_CHECK(rows.begin >= 0 && rows.numel >= 0 && rows.end() <= shape.out,
              "rows {} to {} do not lie within {} rows", rows.begin, rows.end(), shape.out);
    for (int64_t row = rows.begin; row < rows.end(); ++row, out += shape.in) {
        if (!is_packed(shape.form)) {
            widen_row(matrix, row, out);
            continue;
        }
        const PackedRow from = packed_row(matrix, row);
        for (int64_t g = 0; g * shape.group < shape.in; ++g)
            from.write(shape.form, g, g * shape.group, std::min(shape.in, (g + 1) * shape.group),
                       out);
    }
}

}  // namespace dslaunch::kernels
