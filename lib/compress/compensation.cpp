#include "compress/compensation.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "compress/inverse_factor.h"
#include "kernels/matrix/multiply.h"

namespace dslaunch::compress {
namespace {

constexpr int64_t kCompensationBlock = 128;  // inputs to round before the later weights change
constexpr int64_t kCompensationRows = 8;
constexpr int64_t kInputsOfRow = 16;  // the number of inputs for which one row is enough

class Compensation {
  public:
    Compensation(const RoundingForm& form, int64_t out, const InputOrder& inputs,
                 kernels::ThreadTeam& team)
        : made_{out, std::ssize(inputs.order), form, {}, {}}, inputs_(inputs), team_(team) {}

    RoundedMatrix run(const std::vector<float>& numbers, std::vector<float>* changed) {
        const int64_t in = made_.in, out = made_.out, groups = made_.groups();
        DSL_CHECK(std::ssize(numbers) == out * in, "{} numbers do not form a matrix [{}, {}]",
                  numbers.size(), out, in);
        made_.codes.resize(numbers.size());
        made_.scales.resize(static_cast<size_t>(out * groups));
        ordered_.resize(numbers.size());
        for_rows([&](int64_t row) {
            const std::span<const float> own(numbers.data() + row * in, static_cast<size_t>(in));
            for (int64_t g = 0; g < groups; ++g) fit(row, g, own);
            for (int64_t i = 0; i < in; ++i)
                ordered_[static_cast<size_t>(row * in + i)] =
                    own[static_cast<size_t>(inputs_.order[static_cast<size_t>(i)])];
        });
        for (int64_t begin = 0; begin < in; begin += kCompensationBlock) {
            const int64_t width = std::min(kCompensationBlock, in - begin);
            errors_.resize(static_cast<size_t>(out * width));
            for_rows([&](int64_t row) { round_block(row, begin, width); });
            change_later(begin, width);
        }
        if (changed != nullptr) {
            changed->resize(numbers.size());
            for_rows([&](int64_t row) {
                for (int64_t i = 0; i < in; ++i)
                    (*changed)[static_cast<size_t>(row * in +
                                                   inputs_.order[static_cast<size_t>(i)])] =
                        ordered_[static_cast<size_t>(row * in + i)];
            });
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

    // Chooses the scale of one group in ROW. NUMBERS: all numbers of the row.
    void fit(int64_t row, int64_t group, std::span<const float> numbers) {
        const auto begin = static_cast<size_t>(group * made_.group());
        const size_t length = std::min(static_cast<size_t>(made_.group()), numbers.size() - begin);
        made_.scales[static_cast<size_t>(row * made_.groups() + group)] =
            fit_group(made_.form, numbers.subspan(begin, length),
                      std::span(inputs_.importance).subspan(begin, length));
    }

    // Rounds WIDTH numbers of ROW, from position BEGIN in the order of rounding. Stores the negated
    // errors, divided by the diagonal of the factor, for change_later().
    void round_block(int64_t row, int64_t begin, int64_t width) {
        float* const numbers = ordered_.data() + row * made_.in + begin;
        for (int64_t i = 0; i < width; ++i) {
            const int64_t input = inputs_.order[static_cast<size_t>(begin + i)];
            const GroupScale& scale =
                made_.scales[static_cast<size_t>(row * made_.groups() + input / made_.group())];
            const uint8_t code = code_of(made_.form, scale, numbers[i]);
            made_.codes[static_cast<size_t>(row * made_.in + input)] = code;
            const float* const line = inputs_.factor.data() + (begin + i) * made_.in + begin;
            const float error = (number_of(made_.form, scale, code) - numbers[i]) / line[i];
            errors_[static_cast<size_t>(row * width + i)] = error;
            for (int64_t k = i + 1; k < width; ++k) numbers[k] += error * line[k];
        }
    }

    // Changes the weights after the block so that they compensate its errors.
    void change_later(int64_t begin, int64_t width) {
        const int64_t in = made_.in, end = begin + width, left = in - end;
        if (left == 0) return;
        lines_.resize(static_cast<size_t>(left * width));
        for (int64_t c = 0; c < left; ++c)
            for (int64_t i = 0; i < width; ++i)
                lines_[static_cast<size_t>(c * width + i)] =
                    inputs_.factor[static_cast<size_t>((begin + i) * in + end + c)];
        const kernels::PackedMatrix matrix{
            kernels::matrix_shape(kernels::MatrixForm::kF32, left, width),
            reinterpret_cast<const std::byte*>(lines_.data())};
        activations_.assign({errors_.data(), made_.out, width, width}, matrix.shape, team_);
        const kernels::Product product{matrix, ordered_.data() + end, in, nullptr, true};
        kernels::multiply({&product, 1}, activations_, team_);
    }

    RoundedMatrix made_;
    const InputOrder& inputs_;
    kernels::ThreadTeam& team_;
    std::vector<float> ordered_;  // [out, in] in the order of the inputs, changed on the way
    std::vector<float> errors_;   // [out, width of the block]
    std::vector<float> lines_;
    kernels::Activations activations_;
};

}  // namespace

double damping_of(int64_t in, int64_t rows) {
    // The authors of GPTQ use 0.01 with many more rows than inputs. Fewer rows need more damping.
    return 0.01 + static_cast<double>(in) / static_cast<double>(rows);
}

bool are_enough_rows(int64_t in, int64_t rows) {
    return rows > 0 && rows >= in / kInputsOfRow;
}

InputOrder order_inputs(const std::vector<float>& moments, int64_t in, double damping,
                        kernels::ThreadTeam& team) {
    InputOrder made;
    for (int64_t i = 0; i < in; ++i)
        made.importance.push_back(moments[static_cast<size_t>(i * (in + 1))]);
    made.order.resize(static_cast<size_t>(in));
    std::iota(made.order.begin(), made.order.end(), 0);
    std::ranges::stable_sort(made.order, std::greater(), [&](int64_t input) {
        return made.importance[static_cast<size_t>(input)];
    });
    std::vector<float> ordered(moments.size());
    for (int64_t i = 0; i < in; ++i)
        for (int64_t k = 0; k < in; ++k)
            ordered[static_cast<size_t>(i * in + k)] = moments[static_cast<size_t>(
                made.order[static_cast<size_t>(i)] * in + made.order[static_cast<size_t>(k)])];
    made.factor = inverse_factor(ordered, in, damping, team);
    return made;
}

RoundedMatrix round_with_compensation(const RoundingForm& form, const std::vector<float>& numbers,
                                      int64_t out, const InputOrder& inputs,
                                      kernels::ThreadTeam& team, std::vector<float>* changed) {
    return Compensation(form, out, inputs, team).run(numbers, changed);
}

}  // namespace dslaunch::compress
