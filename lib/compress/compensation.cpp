#include "compress/compensation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/matrix/multiply.h"

namespace dslaunch::compress {
namespace {

constexpr int64_t kCompensationBlock = 128;  // inputs after whose rounding all later weights change
constexpr int64_t kCompensationRows = 8;

class Compensation {
  public:
    Compensation(const RoundingForm& form, std::vector<float> numbers, int64_t out,
                 const std::vector<float>& factor, kernels::ThreadTeam& team)
        : made_{out, std::ssize(numbers) / out, form, {}, {}},
          numbers_(std::move(numbers)),
          factor_(factor),
          team_(team) {
        DSL_CHECK(std::ssize(factor) == made_.in * made_.in, "a factor of {} numbers for {} inputs",
                  factor.size(), made_.in);
        made_.codes.resize(numbers_.size());
        made_.scales.resize(static_cast<size_t>(out * made_.groups()));
        importance_.resize(static_cast<size_t>(made_.in));
        for (int64_t i = 0; i < made_.in; ++i) {
            const float diagonal = factor[static_cast<size_t>(i * (made_.in + 1))];
            importance_[static_cast<size_t>(i)] = 1 / (diagonal * diagonal);
        }
    }

    RoundedMatrix run() {
        const int64_t in = made_.in, out = made_.out;
        // A block holds whole groups.
        const int64_t group = made_.form.group;
        const int64_t block = group == 0 ? kCompensationBlock
                                         : group * std::max<int64_t>(1, kCompensationBlock / group);
        if (group == 0) for_rows([&](int64_t row) { fit(row, 0, numbers_.data() + row * in, in); });
        for (int64_t begin = 0; begin < in; begin += block) {
            const int64_t width = std::min(block, in - begin);
            errors_.resize(static_cast<size_t>(out * width));
            for_rows([&](int64_t row) { round_block(row, begin, width); });
            change_later(begin, width);
        }
        return std::move(made_);
    }

  private:
    template <typename Work>
    void for_rows(const Work& work) {
        team_.for_chunks(
            (made_.out + kCompensationRows - 1) / kCompensationRows, [&](int64_t chunk) {
                const int64_t end = std::min(made_.out, (chunk + 1) * kCompensationRows);
                for (int64_t row = chunk * kCompensationRows; row < end; ++row) work(row);
            });
    }

    GroupScale& scale_at(int64_t row, int64_t input) {
        return made_.scales[static_cast<size_t>(row * made_.groups() + input / made_.group())];
    }

    // Chooses the scale of the group of ROW that begins at the input FIRST.
    void fit(int64_t row, int64_t first, const float* numbers, int64_t numel) {
        const std::span<const float> importance(importance_);
        scale_at(row, first) =
            fit_group(made_.form, {numbers, static_cast<size_t>(numel)},
                      importance.subspan(static_cast<size_t>(first), static_cast<size_t>(numel)));
    }

    // Rounds the inputs [begin, begin + width) of ROW. Leaves in the errors, negated, what later
    // blocks must make up for.
    void round_block(int64_t row, int64_t begin, int64_t width) {
        float* const numbers = numbers_.data() + row * made_.in + begin;
        uint8_t* const codes = made_.codes.data() + row * made_.in + begin;
        for (int64_t i = 0; i < width; ++i) {
            const int64_t input = begin + i;
            if (made_.form.group != 0 && input % made_.form.group == 0)
                fit(row, input, numbers + i, std::min(made_.form.group, made_.in - input));
            const GroupScale& scale = scale_at(row, input);
            codes[i] = code_of(made_.form, scale, numbers[i]);
            const float* const line = factor_.data() + input * made_.in + begin;
            const float error = (number_of(made_.form, scale, codes[i]) - numbers[i]) / line[i];
            errors_[static_cast<size_t>(row * width + i)] = error;
            for (int64_t k = i + 1; k < width; ++k) numbers[k] += error * line[k];
        }
    }

    // Adds to the weights after the block what its errors ask for.
    void change_later(int64_t begin, int64_t width) {
        const int64_t in = made_.in, end = begin + width, left = in - end;
        if (left == 0) return;
        lines_.resize(static_cast<size_t>(left * width));
        for (int64_t c = 0; c < left; ++c)
            for (int64_t i = 0; i < width; ++i)
                lines_[static_cast<size_t>(c * width + i)] =
                    factor_[static_cast<size_t>((begin + i) * in + end + c)];
        const kernels::PackedMatrix matrix{
            kernels::matrix_shape(kernels::MatrixForm::kF32, left, width),
            reinterpret_cast<const std::byte*>(lines_.data())};
        activations_.assign({errors_.data(), made_.out, width, width}, matrix.shape, team_);
        const kernels::Product product{matrix, numbers_.data() + end, in, nullptr, true};
        kernels::multiply({&product, 1}, activations_, team_);
    }

    RoundedMatrix made_;
    std::vector<float> numbers_;  // [out, in], changed as the work goes on
    const std::vector<float>& factor_;
    kernels::ThreadTeam& team_;
    std::vector<float> importance_;  // [in]: of an error in a weight that later ones make up for
    std::vector<float> errors_;      // [out, width of the block]
    std::vector<float> lines_;
    kernels::Activations activations_;
};

}  // namespace

RoundedMatrix round_with_compensation(const RoundingForm& form, std::vector<float> numbers,
                                      int64_t out, const std::vector<float>& factor,
                                      kernels::ThreadTeam& team) {
    return Compensation(form, std::move(numbers), out, factor, team).run();
}

}  // namespace dslaunch::compress
