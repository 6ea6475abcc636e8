#include "job/verify/job_verifier.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/message.h"
#include "graph/archive/scalar_types.h"
#include "graph/memory/memory_order.h"
#include "job/verify/update_error.h"
#include "launch/machine/machine_name.h"
#include "plan/layout/tensor_share.h"
#include "plan/print/plan_text.h"
#include "runtime/schedules/learning_rate.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch::job {

namespace {

// Findings of an earlier kind are reported first, since findings of later kinds may only follow
// from them.
enum Kind : int64_t { kBegin, kGradient, kCoverage, kState, kFactor, kUpdate, kBuffer };
constexpr int64_t kKindStride = int64_t{1} << 40;

int64_t order_of(Kind kind, int64_t place) {
    return kind * kKindStride + place;
}

std::span<std::byte> bytes_of(std::vector<float>& values) {
    return std::as_writable_bytes(std::span(values));
}

template <typename T>
void append(std::string& into, const T& value) {
    into.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T take(std::string_view& from) {
    T value;
    std::memcpy(&value, from.data(), sizeof value);
    from.remove_prefix(sizeof value);
    return value;
}

std::vector<float> copy_of(std::span<const float> values) {
    return {values.begin(), values.end()};
}

// Returns a number that depends on a value and on its place (the finalizer of splitmix64).
uint64_t mixed(int64_t place, float value) {
    uint64_t bits =
        static_cast<uint64_t>(place) * 0x9E3779B97F4A7C15U + std::bit_cast<uint32_t>(value);
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBU;
    return bits ^ bits >> 31;
}

}  // namespace

void JobVerifier::Finding::note(int64_t at, const std::string& what) {
    if (at >= order) return;
    order = at;
    text = what;
}

void JobVerifier::StateSums::add(const runtime::SeenUpdate& update) {
    for (int64_t i = 0; i < update.elements.numel; ++i) {
        const auto at = static_cast<size_t>(i);
        const int64_t place = update.elements.begin + i + 1;
        elements += mixed(place, 1);
        first += update.first.empty() ? 0 : mixed(place, update.first[at]);
        second += update.second.empty() ? 0 : mixed(place, update.second[at]);
        third += update.third.empty() ? 0 : mixed(place, update.third[at]);
    }
}

JobVerifier::JobVerifier(VerifierParts parts)
    : parts_(std::move(parts)),
      begin_(whole().parameters().size()),
      end_(begin_.size()),
      last_(begin_.size()) {
    if (first()) reference_.emplace(*parts_.setup, parts_.model_path, parts_.scratch);
}

bool JobVerifier::first() const {
    return job().topology().rank() == 0;
}

void JobVerifier::before_update(const runtime::SeenUpdate& update) {
    Piece piece;
    piece.parameter = update.parameter;
    piece.bucket = update.bucket;
    piece.chunk = update.chunk;
    piece.elements = update.elements;
    piece.factor = update.factor;
    piece.lr = update.lr;
    counts_.moves = counts_.moves || update.lr > 0;
    piece.loss_scale = update.loss_scale;
    piece.update = update.update;
    piece.gradients = copy_of(update.gradients);
    piece.begin = copy_of(update.parameters);
    piece.first = copy_of(update.first);
    piece.second = copy_of(update.second);
    piece.third = copy_of(update.third);
    for (size_t k = 0; k < piece.factors.size(); ++k) piece.factors[k] = copy_of(update.factors[k]);
    pieces_.push_back(std::move(piece));
    begin_[static_cast<size_t>(update.parameter)].add(update);
}

void JobVerifier::after_update(const runtime::SeenUpdate& update) {
    const auto found = std::find_if(pieces_.rbegin(), pieces_.rend(), [&](const Piece& piece) {
        return piece.parameter == update.parameter && piece.elements == update.elements;
    });
    DSL_CHECK(found != pieces_.rend(), "an update of parameter {} ended that had not begun",
              update.parameter);
    Piece& piece = *found;
    piece.end = copy_of(update.parameters);
    const auto value = [](std::span<const float> values, size_t i) {
        return values.empty() ? 0.0 : static_cast<double>(values[i]);
    };
    config::OptimizerConfig optimizer = *update.optimizer;
    if (update.betas) {
        optimizer.beta1 = update.betas->beta1;
        optimizer.beta2 = update.betas->beta2;
    }
    if (optimizer.needs_whole_tensors()) {
        const TensorError found =
            tensor_update_error(optimizer,
                                {parts_.setup->model->parameters()[update.parameter].tensor,
                                 piece.gradients, piece.factor, piece.lr, piece.update},
                                {piece.begin,
                                 piece.first,
                                 piece.second,
                                 {piece.factors[0], piece.factors[1], piece.factors[2]}},
                                {update.parameters, update.first, update.second, update.factors});
        piece.update_error = found.error;
        piece.worst = found.element;
    }
    const size_t alone = optimizer.needs_whole_tensors() ? 0 : piece.end.size();
    for (size_t i = 0; i < alone; ++i) {
        const UpdateFacts facts{static_cast<double>(piece.gradients[i]) * piece.factor, piece.lr,
                                piece.update};
        const ElementValues before{piece.begin[i], value(piece.first, i), value(piece.second, i),
                                   value(piece.third, i)};
        const ElementValues after{piece.end[i], value(update.first, i), value(update.second, i),
                                  value(update.third, i)};
        const double error = update_error(optimizer, facts, before, after);
        if (!(error > piece.update_error)) continue;
        piece.update_error = error;
        piece.worst = static_cast<int64_t>(i);
    }
    piece.first.clear();
    piece.second.clear();
    piece.third.clear();
    piece.factors = {};
    if (!update.half.empty()) look_at_copy(update.half, piece);
    end_[static_cast<size_t>(update.parameter)].add(update);
}

void JobVerifier::look_at_copy(std::span<const uint16_t> half, Piece& piece) const {
    const at::NoGradGuard no_grad;
    const at::ScalarType type = graph::scalar_type_of(parts_.setup->config().precision.weights());
    const at::Tensor rounded =
        at::from_blob(piece.end.data(), {std::ssize(piece.end)}, at::kFloat).to(type);
    const auto* const expected = static_cast<const uint16_t*>(rounded.const_data_ptr());
    for (size_t i = 0; i < half.size(); ++i)
        if (half[i] != expected[i]) piece.misrounded = static_cast<int64_t>(i);
}

// Calls USE(begin in the piece, range in the whole parameter) for each contiguous range of PIECE.
template <typename Use>
void JobVerifier::in_whole(const Piece& piece, Use&& use) const {
    const JobSharing& sharing = parts_.setup->sharing;
    if (!sharing.is_split(piece.parameter)) return use(int64_t{0}, piece.elements);
    const plan::TensorShare share(sharing.plan->parameters[piece.parameter],
                                  {sharing.place.index, sharing.place.size});
    share.for_each(piece.elements, [&](int64_t begin, const Range& elements) {
        use(begin - piece.elements.begin, elements);
    });
}

// Returns the index in this rank's plan of the last Backward that adds to the parameter's gradient.
int64_t JobVerifier::backward_of(int parameter) const {
    const JobSetup& setup = *parts_.setup;
    const auto& instructions = setup.plan.instructions;
    for (int64_t i = std::ssize(instructions); i-- > 0;) {
        const plan::Instruction& instruction = instructions[static_cast<size_t>(i)];
        if (instruction.op != plan::Op::kBackward || instruction.segment < 0) continue;
        const auto& read = setup.info.segments[static_cast<size_t>(instruction.segment)].parameters;
        if (std::ranges::find(read, parameter) != read.end()) return i;
    }
    return std::ssize(instructions);
}

std::string JobVerifier::makers_of(const Piece& piece) const {
    const JobSetup& setup = *parts_.setup;
    std::string text =
        fmt::format("rank {} on {}", job().topology().rank(), launch::machine_name());
    const int64_t backward = backward_of(piece.parameter);
    if (backward < std::ssize(setup.plan.instructions))
        text += fmt::format(
            ", made by `{}`",
            plan::describe(setup.plan.instructions[static_cast<size_t>(backward)], setup.info));
    for (const plan::Instruction& instruction : setup.plan.instructions)
        if (instruction.op == plan::Op::kUpdate && instruction.chunk == piece.chunk &&
            instruction.bucket == piece.bucket)
            text += fmt::format(", read by `{}`", plan::describe(instruction, setup.info));
    return text;
}

double JobVerifier::loss_scale() const {
    double own[1] = {pieces_.empty() ? 0 : pieces_.front().loss_scale};
    double ranks[1] = {pieces_.empty() ? 0.0 : 1.0};
    job().sum_ordered(own);
    job().sum_ordered(ranks);
    return ranks[0] > 0 ? own[0] / ranks[0] : 1;
}

void JobVerifier::check_loss(const ReferenceStep& reference, double loss, Finding& finding) const {
    if (!first() || std::abs(loss - reference.loss) <= reference.loss_bound) return;
    finding.note(
        0, fmt::format("the loss is {:.9g}, but {:.9g} on one rank alone, and rounding explains "
                       "only {:.3g}: forward computes something else, or uses other samples",
                       loss, reference.loss, reference.loss_bound));
}

void JobVerifier::check_begin(const Piece& piece, std::span<const float> expected,
                              Finding& finding) const {
    in_whole(piece, [&](int64_t begin, const Range& elements) {
        for (int64_t i = 0; i < elements.numel; ++i) {
            const float found = piece.begin[static_cast<size_t>(begin + i)];
            const float wanted = expected[static_cast<size_t>(elements.begin + i)];
            if (found == wanted) continue;
            finding.note(
                order_of(kBegin, backward_of(piece.parameter)),
                fmt::format(
                    "{}, element {}, is {:.9g} before the update, but should be {:.9g} ({})",
                    whole().parameters()[piece.parameter].name, elements.begin + i, found, wanted,
                    makers_of(piece)));
            return;
        }
    });
}

void JobVerifier::check_gradient(const Piece& piece, std::span<const float> expected, double bound,
                                 Finding& finding) {
    double worst = 0;
    int64_t worst_at = 0;
    float found_there = 0, wanted_there = 0;
    in_whole(piece, [&](int64_t begin, const Range& elements) {
        for (int64_t i = 0; i < elements.numel; ++i) {
            const float found = piece.gradients[static_cast<size_t>(begin + i)];
            const float wanted = expected[static_cast<size_t>(elements.begin + i)];
            counts_.elements += 1;
            if (found == wanted) {
                counts_.equal += 1;
                continue;
            }
            const double off = std::abs(static_cast<double>(found) - wanted);
            const double share = bound > 0 && std::isfinite(off) ? off / bound : INFINITY;
            if (share <= worst) continue;
            worst = share;
            worst_at = elements.begin + i;
            found_there = found;
            wanted_there = wanted;
        }
    });
    const std::string& name = whole().parameters()[piece.parameter].name;
    if (worst > counts_.worst) {
        counts_.worst = worst;
        counts_.where = name;
    }
    if (worst <= 1) return;
    finding.note(
        order_of(kGradient, backward_of(piece.parameter)),
        fmt::format("the gradient of {}, element {}, is {:.9g}, but {:.9g} on one rank alone, and "
                    "rounding explains only {:.3g} ({})",
                    name, worst_at, found_there / piece.loss_scale, wanted_there / piece.loss_scale,
                    bound / piece.loss_scale, makers_of(piece)));
}

void JobVerifier::check_factor(const ReferenceStep& reference, Finding& finding) const {
    const double clip = parts_.setup->config().gradient_clipping;
    for (const Piece& piece : pieces_) {
        double wanted = 1 / piece.loss_scale;
        if (clip > 0) wanted *= std::min(1.0, clip / (reference.norm + 1e-6));
        const double allowed = wanted * std::max(1e-5, sizes_);
        if (std::abs(piece.factor - wanted) <= allowed) continue;
        finding.note(order_of(kFactor, 0),
                     fmt::format("gradients are multiplied by {:.9g}, but should be multiplied by "
                                 "{:.9g}: the norm of all gradients is {:.9g} on one rank alone "
                                 "(gradient_clipping {}; loss scale {}; {})",
                                 piece.factor, wanted, reference.norm, clip, piece.loss_scale,
                                 makers_of(piece)));
        return;
    }
}

void JobVerifier::check_update(const Piece& piece, Finding& finding) const {
    if (piece.misrounded >= 0)
        finding.note(
            order_of(kUpdate, backward_of(piece.parameter)),
            fmt::format("the {} copy of {} is wrong: element {} of this rank's part, which begins "
                        "at {}, does not equal {:.9g} after rounding ({})",
                        dtype_name(parts_.setup->config().precision.compute),
                        whole().parameters()[piece.parameter].name, piece.misrounded,
                        piece.elements.begin, piece.end[static_cast<size_t>(piece.misrounded)],
                        makers_of(piece)));
    if (piece.update_error <= 1) return;
    const auto i = static_cast<size_t>(piece.worst);
    finding.note(
        order_of(kUpdate, backward_of(piece.parameter)),
        fmt::format(
            "the update of {} is wrong: element {} of this rank's part, which begins at {}, "
            "becomes {:.9g} from the value {:.9g} and the gradient {:.9g}; the error is {:.3g} "
            "times what rounding explains in an update by {} ({})",
            whole().parameters()[piece.parameter].name, piece.worst, piece.elements.begin,
            piece.end[i], piece.begin[i], piece.gradients[i] * piece.factor, piece.update_error,
            zero::ShardOptimizer::name(parts_.setup->config().optimizer), makers_of(piece)));
}

// Collects the parameter's new values from all ranks on rank 0. Reports elements that no rank
// updated, and replicas that differ.
void JobVerifier::take_over(int parameter, bool has_gradient, Finding& finding) {
    std::string mine;
    for (const Piece& piece : pieces_) {
        if (piece.parameter != parameter) continue;
        in_whole(piece, [&](int64_t begin, const Range& elements) {
            append(mine, elements);
            mine.append(reinterpret_cast<const char*>(piece.end.data() + begin),
                        static_cast<size_t>(elements.numel) * sizeof(float));
        });
    }
    const std::vector<std::string> all = job().all_gather(mine);
    if (!first()) return;
    const at::NoGradGuard no_grad;
    const std::string& name = whole().parameters()[parameter].name;
    const at::Tensor& own = reference_->parameter(parameter);
    const at::Tensor flat = graph::in_memory_order(own);
    const auto numel = static_cast<size_t>(own.numel());
    float* const values = flat.mutable_data_ptr<float>();
    std::vector<int> writer(numel, -1);
    for (size_t rank = 0; rank < all.size(); ++rank) {
        for (std::string_view left = all[rank]; !left.empty();) {
            const auto range = take<Range>(left);
            for (int64_t i = range.begin; i < range.end(); ++i) {
                const auto value = take<float>(left);
                const auto at = static_cast<size_t>(i);
                if (writer[at] >= 0 && std::memcmp(&values[at], &value, sizeof value) != 0)
                    finding.note(order_of(kUpdate, 0),
                                 fmt::format("{}, element {}, is {:.9g} on rank {}, but {:.9g} on "
                                             "rank {} after the update",
                                             name, i, values[at], writer[at], value, rank));
                writer[at] = static_cast<int>(rank);
                values[at] = value;
            }
        }
    }
    if (!own.is_non_overlapping_and_dense()) own.detach().copy_(flat.view(own.sizes()));
    const auto left_out = std::ranges::find(writer, -1);
    if (has_gradient && left_out != writer.end())
        finding.note(order_of(kCoverage, parameter),
                     fmt::format("{}, element {}, has a gradient, but no rank updates it", name,
                                 left_out - writer.begin()));
}

void JobVerifier::check_parameter(int parameter, const ReferenceStep& reference, Finding& finding) {
    const at::Tensor& tensor = whole().parameters()[parameter].tensor;
    std::vector<float> gradient(static_cast<size_t>(tensor.numel()));
    std::array<double, 2> facts = {0, 0};  // 1 if there is a gradient, and the bound
    if (first() && reference.gradients[parameter].defined()) {
        facts = {1, reference.bounds[parameter]};
        std::copy_n(reference.gradients[parameter].const_data_ptr<float>(), gradient.size(),
                    gradient.begin());
    }
    job().broadcast(std::as_writable_bytes(std::span(facts)));
    if (facts[0] > 0) job().broadcast(bytes_of(gradient));
    std::vector<float> begin(gradient.size());
    if (first()) {
        // This is a copy if the parameter's elements are not adjacent in memory.
        const at::Tensor own = graph::in_memory_order(reference_->parameter(parameter));
        std::copy_n(own.const_data_ptr<float>(), begin.size(), begin.begin());
    }
    job().broadcast(bytes_of(begin));
    check_states(parameter, finding);
    for (const Piece& piece : pieces_) {
        if (piece.parameter != parameter) continue;
        check_begin(piece, begin, finding);
        check_gradient(piece, gradient, facts[1], finding);
        check_update(piece, finding);
    }
    const bool moves = std::ranges::any_of(gradient, [](float g) { return g != 0; });
    take_over(parameter, facts[0] > 0 && moves, finding);
}

// Compares the states before this update with the states after the previous one. Elements without a
// gradient in one of the two steps are not compared.
void JobVerifier::check_states(int parameter, Finding& finding) {
    const auto p = static_cast<size_t>(parameter);
    const StateSums begin = std::exchange(begin_[p], {}), end = std::exchange(end_[p], {});
    const StateSums before = end.elements == 0 ? last_[p] : std::exchange(last_[p], end);
    if (before.elements != begin.elements || before.elements == 0) return;
    if (before.first == begin.first && before.second == begin.second && before.third == begin.third)
        return;
    const auto piece = std::ranges::find_if(
        pieces_, [&](const Piece& mine) { return mine.parameter == parameter; });
    finding.note(order_of(kState, backward_of(parameter)),
                 fmt::format("the optimizer's states of {} before update {} differ from those that "
                             "the previous update left ({})",
                             whole().parameters()[p].name, piece->update, makers_of(*piece)));
}

// Checks the buffers that this rank's segments read, if the rank has the same batches as the first
// data rank.
void JobVerifier::check_buffers(Finding& finding) const {
    const JobSetup& setup = *parts_.setup;
    std::vector<char> read(setup.model->buffers().size(), 0);
    const bool has_batches = setup.data_rank() == 0;
    for (const plan::StagePart& part : setup.plan_options.stage_work.parts)
        for (int64_t s = 0; s < part.segments.end - part.segments.begin; ++s)
            for (const int b : setup.segmented->buffers_of(
                     setup.segmented->segments()[static_cast<size_t>(part.first_segment + s)]))
                read[b] = 1;
    if (setup.plan_options.stage_work.parts.empty()) std::ranges::fill(read, 1);
    const bool half = setup.config().precision.compute != DType::kF32;
    for (size_t b = 0; b < read.size(); ++b) {
        const graph::ModelBuffer& buffer = setup.model->buffers()[b];
        at::Tensor expected = buffer.tensor.clone();
        const at::Tensor* const alone = first() ? reference_->buffer(static_cast<int>(b)) : nullptr;
        if (alone != nullptr) expected.copy_(*alone);
        expected = expected.contiguous();
        job().broadcast({static_cast<std::byte*>(expected.mutable_data_ptr()), expected.nbytes()});
        if (!has_batches || read[b] == 0 || expected.numel() == 0) continue;
        const at::Tensor off =
            (buffer.tensor.to(at::kDouble) - expected.to(at::kDouble)).abs().max();
        const double largest = expected.to(at::kDouble).abs().max().item<double>();
        const double allowed = expected.is_floating_point() ? (half ? 2e-2 : 1e-5) * largest : 0.0;
        if (off.item<double>() <= allowed) continue;
        finding.note(order_of(kBuffer, static_cast<int64_t>(b)),
                     fmt::format("the buffer {} differs by {:.3g} (its largest value is {:.3g}) "
                                 "from the buffer that one rank alone computes (rank {} on {})",
                                 buffer.name, off.item<double>(), largest, job().topology().rank(),
                                 launch::machine_name()));
    }
}

// If the loss differs or any rank has a finding, fails on every rank, with the loss and the first
// of all findings.
void JobVerifier::agree(const Finding& loss, const Finding& mine) {
    Finding first_of_all;
    for (const std::string& other : job().all_gather(encode(mine))) {
        const auto theirs = decode<Finding>(other);
        first_of_all.note(theirs.order, theirs.text);
    }
    std::string text = job().all_gather(loss.text).front();
    if (!text.empty() && !first_of_all.text.empty()) text += "; ";
    text += first_of_all.text;
    if (!text.empty())
        fail(ExitCode::kDiverged,
             "NOT equal: step {} differs from what one rank alone computes: {}", step_, text);
}

void JobVerifier::end_step(int64_t step, double loss, bool skipped) {
    parts_.inner->end_step(step, loss, skipped);
    step_ = step;
    parts_.state->settle();
    const double scale = loss_scale();
    ReferenceStep reference;
    if (first()) reference = reference_->run(step, scale);
    std::array<double, 2> facts = {reference.norm, 0};
    if (first()) {
        double spread = 0;
        for (size_t p = 0; p < reference.gradients.size(); ++p)
            if (reference.gradients[p].defined())
                spread += reference.bounds[p] / scale *
                          std::sqrt(static_cast<double>(reference.gradients[p].numel()));
        facts[1] = spread / std::max(reference.norm, 1e-30);
    }
    job().broadcast(std::as_writable_bytes(std::span(facts)));
    reference.norm = facts[0];
    sizes_ = facts[1];
    Finding finding, of_loss;
    if (!reference.graph_fault.empty()) of_loss.note(-1, reference.graph_fault);
    check_loss(reference, loss, of_loss);
    if (skipped) {
        ++counts_.skipped;
    } else {
        ++counts_.steps;
        for (size_t p = 0; p < whole().parameters().size(); ++p)
            if (whole().parameters()[p].tensor.requires_grad())
                check_parameter(static_cast<int>(p), reference, finding);
        check_factor(reference, finding);
    }
    check_buffers(finding);
    pieces_.clear();
    agree(of_loss, finding);
}

// Returns a text which says that no update changed a weight, and how many steps it takes until an
// update changes one.
std::string JobVerifier::idle_updates_text() const {
    constexpr int64_t kUpdatesMax = 1'000'000;
    const config::RunConfig& config = parts_.setup->config();
    const auto moving =
        runtime::first_moving_update(config.scheduler, config.optimizer.lr, {0, kUpdatesMax});
    return ". The learning rate was 0 in all of these steps, so no update changed a weight" +
           (moving ? fmt::format(": use --steps {}", *moving + 2) : "");
}

std::string JobVerifier::report() const {
    std::array<double, 3> sums = {counts_.elements, counts_.equal, counts_.moves ? 1.0 : 0.0};
    job().sum_ordered(sums);
    double worst = 0;
    std::string where;
    for (const std::string& other :
         job().all_gather(fmt::format("{} {}", counts_.worst, counts_.where))) {
        const double theirs = std::stod(other);
        if (theirs > worst) {
            worst = theirs;
            where = other.substr(other.find(' ') + 1);
        }
    }
    if (counts_.steps == 0)
        fail(ExitCode::kDiverged,
             "nothing verified: all {} were skipped, because their gradients were not finite at "
             "this loss scale: lower fp16.initial_scale_power, or verify more steps (--steps)",
             counted(counts_.skipped, "step"));
    std::string text = fmt::format(
        "verified: {} of {} match what one rank alone computes: loss, gradients, updates by {}{}; "
        "{} of {} gradient elements have the same bits",
        counted(counts_.steps, "step"), counted(job().topology().world_size(), "rank"),
        zero::ShardOptimizer::name(parts_.setup->config().optimizer),
        parts_.setup->model->buffers().empty() ? "" : ", buffers", sums[1], sums[0]);
    if (!where.empty())
        text += fmt::format(
            ", and the others differ by at most {:.2g} times what rounding explains ({})", worst,
            where);
    if (counts_.skipped > 0)
        text +=
            fmt::format("; {} skipped because of the loss scale", counted(counts_.skipped, "step"));
    if (sums[2] == 0) text += idle_updates_text();
    if (first())
        text +=
            reference_->forward_not_run().empty()
                ? ". The model's own forward, as LibTorch runs it, has the same loss and gradients"
                : fmt::format(". LibTorch did not run the model's own forward for comparison: {}",
                              reference_->forward_not_run());
    return text;
}

}  // namespace dslaunch::job
