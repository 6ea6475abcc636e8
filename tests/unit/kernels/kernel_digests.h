// Runs every kernel of one instruction set on the same made-up numbers, and returns a line with a
// hash of the results for each, so that processors can be compared that are not in one machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "base/half_bits.h"
#include "kernels/cpu/kernel_tables.h"
#include "kernels/matrix/cpu/matrix_kernels.h"
#include "kernels/matrix/cpu/token_kernels.h"

namespace dslaunch::test {

// The tables of one instruction set.
struct KernelTables {
    const kernels::FlatKernels& flat;
    const kernels::PackingKernels& packing;
    const kernels::SignKernels& signs;
    const kernels::MatrixKernels& matrix;
    const kernels::TokenKernels& token;
};

class KernelDigests {
  public:
    explicit KernelDigests(const KernelTables& tables) : tables_(tables) {}
    // Returns lines such as "adam 777: 0123456789abcdef".
    std::string lines() {
        for (const int64_t numel : {int64_t{5}, int64_t{777}, int64_t{4096}}) {
            flat(numel);
            packing(numel);
            signs(numel);
            tokens(numel);
        }
        halves();
        for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{6}, int64_t{21}})
            for (int form = 0; form < 6; ++form) product(form, rows);
        attention();
        return lines_;
    }

  private:
    using Floats = std::vector<float>;

    static size_t at(int64_t i) { return static_cast<size_t>(i); }

    // Returns numbers of both signs and of magnitudes from 2^-9 to 2^4.
    Floats numbers(int64_t numel) {
        Floats out(at(numel));
        for (float& x : out) {
            const auto draw =
                static_cast<int32_t>((state_ = state_ * 6364136223846793005U + 1) >> 33);
            x = std::ldexp(static_cast<float>(draw % 65'521 - 32'760), draw % 13 - 19);
        }
        return out;
    }
    static Floats squares(Floats values) {
        for (float& x : values) x *= x;
        return values;
    }
    std::vector<uint16_t> half_numbers(int64_t numel, bool bf16) {
        std::vector<uint16_t> out;
        for (const float x : numbers(numel)) out.push_back(bf16 ? bf16_of(x) : fp16_of(x));
        return out;
    }
    template <typename... Arrays>
    void note(const std::string& name, int64_t numel, const Arrays&... arrays) {
        uint64_t hash = 14695981039346656037U;
        const auto add = [&](const auto& array) {
            for (const uint8_t byte : as_bytes_of(std::span(array)))
                hash = (hash ^ byte) * 1099511628211U;
        };
        (add(arrays), ...);
        char line[96];
        std::snprintf(line, sizeof line, "%s %ld: %016lx\n", name.c_str(), static_cast<long>(numel),
                      static_cast<unsigned long>(hash));
        lines_ += line;
    }
    template <typename T>
    static std::span<const uint8_t> as_bytes_of(std::span<T> array) {
        return {reinterpret_cast<const uint8_t*>(array.data()), array.size_bytes()};
    }

    void flat(int64_t numel) {
        using namespace kernels;
        const Floats a = numbers(numel), b = numbers(numel), c = numbers(numel);
        const float* const sources[] = {a.data(), b.data(), c.data()};
        const Sources sum_of{sources, nullptr, 3, NumberKind::kFp32};
        for (int rule = 0; rule < 4; ++rule) {
            Floats p = numbers(numel), m = numbers(numel), v = squares(numbers(numel));
            if (rule == 1) m = squares(m);  // AdaGrad's sum of squares
            std::vector<uint16_t> half(at(numel));
            const NumberKind kind = rule % 2 == 0 ? NumberKind::kBf16 : NumberKind::kFp16;
            const UpdateArrays arrays{sum_of,   0.25F,   0.01F,       p.data(), p.data(), m.data(),
                                      v.data(), nullptr, half.data(), kind,     false};
            if (rule == 0)
                tables_.flat.adam(
                    arrays, {0, numel},
                    {0.99F, 0.1F, 0.999F, 0.001F, 0.7F, 1e-8F, 0.01F, AdamForm::kUsual});
            if (rule == 1) tables_.flat.adagrad(arrays, {0, numel}, {1e-8F, 0.01F});
            if (rule == 2)
                tables_.flat.lion(arrays, {0, numel}, {0.99F, 0.9F, 0.1F, 0.99F, 0.01F, 0.01F});
            if (rule == 3) tables_.flat.sgd(arrays, {0, numel}, {0.9F, 1.0F, 0.01F, true, false});
            note("update " + std::to_string(rule), numel, p, m, v, half);
        }
        Floats sum(at(numel)), more = numbers(numel);
        tables_.flat.sum(sum_of, 0.5F, sum.data(), numel);
        tables_.flat.accumulate(sum_of, 0.5F, more.data(), numel);
        const double of_squares = tables_.flat.block_squares(a.data(), numel);
        note("sums", numel, sum, more, std::span(&of_squares, 1));
        for (const bool bf16 : {true, false}) {
            const auto x = half_numbers(numel, bf16), y = half_numbers(numel, bf16);
            const uint16_t* const both[] = {x.data(), y.data()};
            std::vector<uint16_t> out(at(numel));
            tables_.flat.sum_half({nullptr, both, 2, bf16 ? NumberKind::kBf16 : NumberKind::kFp16},
                                  out.data(), numel);
            note("sum_half", numel, out);
        }
    }

    // Every 16-bit number, and numbers between them, ties too.
    void halves() {
        constexpr int64_t kAll = 65'536;
        std::vector<uint16_t> all(kAll), back(kAll);
        for (int64_t i = 0; i < kAll; ++i) all[at(i)] = static_cast<uint16_t>(i);
        Floats wide(kAll);
        tables_.packing.from_fp16(all.data(), wide.data(), kAll);
        tables_.flat.to_fp16(wide.data(), back.data(), kAll);
        note("fp16", kAll, wide, back);
        for (const uint32_t rest : {0x0FFFU, 0x1000U, 0x1001U}) {
            Floats between = wide;
            for (float& x : between)
                x = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, x) + rest);
            tables_.flat.to_fp16(between.data(), back.data(), kAll);
            note("to_fp16", rest, back);
            tables_.flat.to_bf16(between.data(), back.data(), kAll);
            note("to_bf16", rest, back);
        }
        tables_.packing.from_bf16(all.data(), wide.data(), kAll);
        note("from_bf16", kAll, wide);
    }

    void packing(int64_t numel) {
        const Floats x = numbers(numel);
        const uint32_t seed = 7;
        const int64_t blocks = (numel + kernels::kPackedBlock - 1) / kernels::kPackedBlock;
        Floats scales(at(blocks)), back(at(numel));
        std::vector<int8_t> codes(at(numel));
        std::vector<uint8_t> bytes(at(numel));
        std::vector<uint16_t> half(at(numel));
        tables_.packing.to_bf16(x.data(), half.data(), numel, seed);
        note("drawn bf16", numel, half);
        for (const uint32_t* const draws : {static_cast<const uint32_t*>(nullptr), &seed}) {
            tables_.packing.to_int8(x.data(), scales.data(), codes.data(), numel, draws);
            tables_.packing.from_int8(scales.data(), codes.data(), back.data(), numel);
            note("int8", numel, scales, codes, back);
            tables_.packing.to_int4(x.data(), scales.data(), bytes.data(), numel, draws);
            tables_.packing.from_int4(scales.data(), bytes.data(), back.data(), numel);
            note("int4", numel, scales, bytes, back);
        }
        tables_.packing.squares_to_uint8(squares(x).data(), scales.data(), bytes.data(), numel,
                                         seed);
        tables_.packing.squares_from_uint8(scales.data(), bytes.data(), back.data(), numel);
        note("uint8", numel, scales, bytes, back);
    }

    void signs(int64_t numel) {
        const Floats x = numbers(numel), v = squares(numbers(numel));
        Floats error = numbers(numel), out = numbers(numel), sum = numbers(numel);
        std::vector<uint8_t> bits(at((numel + 7) / 8));
        const float scale =
            tables_.signs.compress(x.data(), 0.9F, error.data(), bits.data(), numel);
        tables_.signs.expand(bits.data(), scale, out.data(), numel);
        tables_.signs.expand_add(bits.data(), scale, sum.data(), numel);
        note("signs", numel, error, bits, out, sum, std::span(&scale, 1));
        Floats p = numbers(numel), meeting = numbers(numel), m = numbers(numel), fresh = v;
        const kernels::LocalMoves moves{numel,    p.data(), meeting.data(), m.data(),
                                        v.data(), 1e-8F,    0.01F};
        tables_.signs.moves(moves, out.data());
        tables_.signs.take_moves(moves, x.data(), 0.1F);
        const float ratio = tables_.signs.fresh(
            {numel, x.data(), m.data(), v.data(), fresh.data(), 0.9, 0.999, 1e-8F});
        note("moves", numel, out, p, meeting, m, fresh, std::span(&ratio, 1));
    }

    void tokens(int64_t width) {
        const Floats x = numbers(width), y = numbers(width), w = numbers(width);
        Floats out(at(width));
        tables_.token.rms_norm(x.data(), width, {w.data(), nullptr, 1e-6F, true}, out.data());
        note("rms_norm", width, out);
        tables_.token.layer_norm(x.data(), width, {w.data(), y.data(), 1e-5F, false}, out.data());
        note("layer_norm", width, out);
        for (int gate = 0; gate < 6; ++gate) {
            tables_.token.gate[gate](x.data(), y.data(), out.data(), width);
            note("gate " + std::to_string(gate), width, out);
        }
        tables_.token.softmax(x.data(), width, out.data());
        note("softmax", width, out);
        tables_.token.add(x.data(), y.data(), out.data(), width);
        const kernels::Rotation rotation{1, width, x.data(), y.data(), width / 2};
        tables_.token.rotate_halves(out.data(), rotation);
        tables_.token.rotate_pairs(out.data(), rotation);
        note("rotation", width, out);
    }

    // Forms as MatrixForm has them: fp32, bf16, fp16, int8, int4, nf4. The last panel is not whole.
    void product(int form, int64_t rows) {
        constexpr int64_t kOut = 70, kIn = 192, kPanels = 5, kGroup = 64, kGroups = kIn / kGroup;
        const Floats weights = numbers(kPanels * 16 * kIn), x = numbers(rows * kIn);
        std::vector<uint8_t> codes(at(kPanels * 16 * kIn * 4));
        std::vector<uint16_t> scales(at(kPanels * kGroups * 16));
        Floats factors(at(kPanels * 32)), scratch(at(kGroups * 32)), y = numbers(rows * kOut);
        if (form == 0) __builtin_memcpy(codes.data(), weights.data(), codes.size());
        for (size_t i = 0; (form == 1 || form == 2) && i < weights.size(); ++i) {
            const uint16_t half = form == 1 ? bf16_of(weights[i]) : fp16_of(weights[i]);
            __builtin_memcpy(codes.data() + 2 * i, &half, 2);
        }
        for (int64_t panel = 0; form >= 3 && panel < kPanels; ++panel) {
            kernels::PanelSource from{{}, kIn, kGroup, kGroups};
            for (int64_t i = 0; i < 16; ++i)
                if (panel * 16 + i < kOut) from.rows[i] = &weights[at((panel * 16 + i) * kIn)];
            const int64_t code_bytes = kIn * (form == 3 ? 16 : 8);
            const kernels::PanelTarget to{&codes[at(panel * code_bytes)],
                                          &scales[at(panel * kGroups * 16)],
                                          &factors[at(panel * 32)], scratch.data()};
            if (form == 3) tables_.matrix.to_int8(from, to);
            if (form == 4) tables_.matrix.to_int4(from, to);
            if (form == 5) tables_.matrix.to_nf4(from, to);
        }
        const int64_t blocks = (rows + 3) / 4;
        std::vector<int8_t> x_codes(at(blocks * 4 * kIn));
        Floats x_scales(at(blocks * 4 * kGroups)), sums(at(blocks * 4 * kGroups));
        std::vector<int32_t> offsets(at(blocks * 4 * kGroups));
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t first = r / 4 * 4 * kGroups, place = r % 4;
            tables_.matrix.round_row(
                &x[at(r * kIn)], kIn, kGroup,
                {&x_codes[at(first * kGroup + place * 4)], &x_scales[at(first + place)],
                 &offsets[at(first + place)], &sums[at(first + place)]});
        }
        tables_.matrix.multiply[form]({codes.data(),
                                       scales.data(),
                                       factors.data(),
                                       kIn,
                                       kOut,
                                       kGroup,
                                       kGroups,
                                       0,
                                       kOut,
                                       rows,
                                       x.data(),
                                       kIn,
                                       x_codes.data(),
                                       x_scales.data(),
                                       offsets.data(),
                                       sums.data(),
                                       nullptr,
                                       y.data(),
                                       kOut,
                                       weights.data(),
                                       true});
        note("product " + std::to_string(form), rows, codes, scales, factors, x_codes, y);
    }

    void attention() {
        constexpr int64_t kWidth = 40, kPositions = 75, kHeads = 5;
        const Floats q = numbers(kHeads * kWidth);
        for (int type = 0; type < 3; ++type) {
            const Floats wide = numbers(2 * kPositions * kWidth);
            const auto narrow = half_numbers(2 * kPositions * kWidth, type == 1);
            const void* const keys =
                type == 0 ? static_cast<const void*>(wide.data()) : narrow.data();
            const void* const values = type == 0
                                           ? static_cast<const void*>(&wide[kPositions * kWidth])
                                           : &narrow[kPositions * kWidth];
            Floats gathered(at(kHeads * (kWidth + 2))), out(kWidth);
            std::vector<kernels::AttendQuery> queries;
            for (int64_t h = 0; h < kHeads; ++h) {
                gathered[at(h * (kWidth + 2) + kWidth)] = -INFINITY;
                queries.push_back({&q[at(h * kWidth)], &gathered[at(h * (kWidth + 2))], h, 60 + h});
            }
            tables_.token.attend[type]({queries.data(), kHeads, &keys, &values, kPositions, kWidth,
                                        0, kWidth, 0, kPositions, 0.1F, type == 2 ? 5.0F : 0.0F});
            tables_.token.merge(gathered.data(), kWidth + 2, kHeads, kWidth, out.data());
            note("attention", type, gathered, out);
        }
    }

    KernelTables tables_;
    uint64_t state_ = 1;
    std::string lines_;
};

}  // namespace dslaunch::test
