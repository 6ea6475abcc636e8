// A job, compared with one rank that computes everything alone: all values are equal, and every
// value that a witness is shown wrongly is found and named.
#include "job/verify/job_verifier.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "job_rank.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using runtime::SeenUpdate;
using testing::Job;

namespace {

// The data of an update as a witness is shown it, with copies of the values.
struct Shown {
    SeenUpdate seen;
    std::vector<float> gradients, parameters, first, second;
    std::vector<uint16_t> half;
    bool left_out = false;

    explicit Shown(const SeenUpdate& update)
        : seen(update),
          gradients(update.gradients.begin(), update.gradients.end()),
          parameters(update.parameters.begin(), update.parameters.end()),
          first(update.first.begin(), update.first.end()),
          second(update.second.begin(), update.second.end()),
          half(update.half.begin(), update.half.end()) {}

    const SeenUpdate& whole() {
        seen.gradients = gradients;
        seen.parameters = parameters;
        seen.first = first;
        seen.second = second;
        seen.half = half;
        return seen;
    }
};

struct Spoil {
    std::function<void(Shown&)> before = [](Shown&) {};
    std::function<void(Shown&)> after = [](Shown&) {};
    double loss = 1;  // multiplies the loss
};

// Falsifies the data that the verifier is shown about parameter 2 in step 2.
class Spoiler final : public runtime::BetweenSteps, public runtime::UpdateWitness {
  public:
    Spoiler(const job::VerifierParts& parts, Spoil spoil)
        : verifier_(parts), spoil_(std::move(spoil)) {}

    void end_step(int64_t step, double loss, bool skipped) override {
        verifier_.end_step(step, step_ == 1 ? loss * spoil_.loss : loss, skipped);
        ++step_;
    }
    void before_update(const SeenUpdate& update) override {
        show(update, spoil_.before, [&](const SeenUpdate& seen) { verifier_.before_update(seen); });
    }
    void after_update(const SeenUpdate& update) override {
        show(update, spoil_.after, [&](const SeenUpdate& seen) { verifier_.after_update(seen); });
    }
    [[nodiscard]] std::string report() const { return verifier_.report(); }

  private:
    template <typename Pass>
    void show(const SeenUpdate& update, const std::function<void(Shown&)>& spoil, Pass&& pass) {
        Shown shown(update);
        if (step_ == 1 && update.parameter == 2) spoil(shown);
        if (!shown.left_out) pass(shown.whole());
    }

    job::JobVerifier verifier_;
    Spoil spoil_;
    int64_t step_ = 0;  // steps that have ended
};

// Returns the report of a job with EXTRA in its config.
std::string verify(const std::string& extra, const Spoil& spoil = {}) {
    const test::TemporaryFolder folder;
    Job job = testing::job_of(folder, extra, 2);
    std::optional<Spoiler> spoiler;
    std::string report;
    job.watch = [&](const job::VerifierParts& parts) {
        spoiler.emplace(parts, spoil);
        parts.state->set_witness(&*spoiler);
        return &*spoiler;
    };
    job.trained = [&] { report = spoiler->report(); };
    static_cast<void>(testing::Rank(job, nullptr, c10::kCPU).run());
    return report;
}

std::string difference(const Spoil& spoil, const std::string& extra = "") {
    return test::error_of(ExitCode::kDiverged, [&] { static_cast<void>(verify(extra, spoil)); });
}

}  // namespace

TEST_CASE("an earlier run's files change once, after the evaluation before the first step") {
    const test::TemporaryFolder folder;
    Job job = testing::job_of(folder, "", 2);
    std::string config = test::content_of(job.config);
    config.replace(config.find("\"seed\""), 0, "\"eval_interval\": 1, ");
    test::write_file(job.config, config);
    std::vector<std::string> order;
    job.change = [&](runtime::TrainerParts& parts) {
        parts.after_evaluation = [&](int64_t step) {
            order.push_back("evaluated " + std::to_string(step));
        };
        parts.begin_steps = [&] { order.emplace_back("begun"); };
    };
    static_cast<void>(testing::Rank(job, nullptr, c10::kCPU).run());
    CHECK(order == std::vector<std::string>{"evaluated 0", "begun", "evaluated 1", "evaluated 2"});
}

TEST_CASE("a job is what one rank alone computes, to the bit in fp32") {
    for (const char* extra : {"", R"("zero_optimization": {"stage": 3},)",
                              R"("activation_checkpointing": {"number_checkpoints": 2},)"}) {
        const std::string report = verify(extra);
        INFO(report);
        CHECK_THAT(report,
                   Catch::StartsWith("verified: 2 steps of 1 rank match what one rank alone "
                                     "computes: "));
        CHECK_THAT(report,
                   Catch::EndsWith(". The model's own forward, as LibTorch runs it, has the "
                                   "same loss and gradients"));
        const std::string counted = report.substr(report.rfind(';') + 2);
        const std::string equal = counted.substr(0, counted.find(' '));
        CHECK(std::stol(equal) > 0);
        CHECK_THAT(counted, Catch::StartsWith(equal + " of " + equal + " "));
    }
}

TEST_CASE("updates of a learning rate of 0 are no proof, and the report says what is") {
    const std::string report =
        verify(R"("scheduler": {"type": "WarmupCosineLR",)"
               R"( "params": {"warmup_num_steps": 120, "total_num_steps": 1800}},)");
    INFO(report);
    // The cosine's warm-up is 0 at updates 0 and 1, and 1 / ln 120 of the way at update 2.
    CHECK_THAT(report, Catch::Contains("The learning rate was 0 in all of these steps, so no "
                                       "update changed a weight: use --steps 4. "));
    CHECK_THAT(verify(""), !Catch::Contains("learning rate"));
}

TEST_CASE("a gradient, a factor, a value, a state and a loss that differ are named") {
    Spoil spoil;
    spoil.before = [](Shown& shown) { shown.gradients[5] *= 1.001F; };
    std::string text = difference(spoil);
    INFO(text);
    CHECK_THAT(text,
               Catch::StartsWith("NOT equal: step 2 differs from what one rank alone computes: "
                                 "the gradient of ") &&
                   Catch::Contains(", element 5, is ") && Catch::Contains("(rank 0 on ") &&
                   Catch::Contains("made by `Backward segment ") &&
                   Catch::Contains("read by `Update bucket "));
    spoil.before = [](Shown& shown) { shown.seen.factor *= 1.01F; };
    CHECK_THAT(difference(spoil), Catch::Contains("gradients are multiplied by "));
    spoil.before = [](Shown& shown) { shown.parameters[3] += 1e-3F; };
    CHECK_THAT(difference(spoil),
               Catch::Contains(", element 3, is ") && Catch::Contains(" before the update"));
    spoil.before = [](Shown& shown) { shown.first[3] *= 1.001F; };
    CHECK_THAT(difference(spoil), Catch::Contains("the optimizer's states of ") &&
                                      Catch::Contains("before update 2 differ from those"));
    spoil = {};
    spoil.after = [](Shown& shown) { shown.parameters[3] += 1e-3F; };
    CHECK_THAT(difference(spoil),
               Catch::Contains("the update of ") &&
                   Catch::Contains("element 3 of this rank's part, which begins at 0, "));
    spoil.after = [](Shown& shown) { shown.second.back() *= 1.001F; };
    CHECK_THAT(difference(spoil), Catch::Contains("explains in an update by adamw"));
    spoil = {};
    spoil.loss = 1.001;
    CHECK_THAT(difference(spoil), Catch::Contains("the loss is "));
}

TEST_CASE("an update that nobody makes, and a 16-bit copy that is not its value, are named") {
    Spoil spoil;
    spoil.before = spoil.after = [](Shown& shown) { shown.left_out = true; };
    CHECK_THAT(difference(spoil), Catch::Contains(", element 0, has a gradient, but no rank "
                                                  "updates it"));
    spoil = {};
    spoil.after = [](Shown& shown) { shown.half[7] ^= 1; };
    CHECK_THAT(difference(spoil, R"("bf16": {"enabled": true},)"),
               Catch::Contains("the BF16 copy of ") && Catch::Contains("element 7 of this"));
}

}  // namespace dslaunch
