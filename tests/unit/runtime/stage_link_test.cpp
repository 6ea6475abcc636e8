// Messages between the stages of a pipeline: values of any kind arrive unchanged, and a message of
// another part is an error.
#include "runtime/compute/stage_link.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <c10/core/ScalarType.h>

#include <thread>

#include "base/error.h"
#include "support/catch.h"
#include "support/hang.h"
#include "support/world.h"

namespace dslaunch {

using namespace runtime;
namespace {

using namespace std::chrono_literals;

// Stages that are threads of one process.
class LinkedStages {
  public:
    LinkedStages() {
        for (int stage = 0; stage < 2; ++stage) links_.push_back(hub_.link_of(stage));
    }
    [[nodiscard]] StageLink of(int stage) const {
        return {std::vector<Link*>(2, links_[stage].get()), stage};
    }

  private:
    testing::InProcessHub hub_{test::kHangTime};
    std::vector<std::unique_ptr<Link>> links_;
};

constexpr StageMessage kFirstValues{0, false, 3};

}  // namespace

TEST_CASE("values between stages arrive as they were sent") {
    const LinkedStages stages;
    const at::Tensor wants = at::arange(12, at::kFloat).view({3, 4}).t().set_requires_grad(true);
    const at::Tensor plain = at::arange(5, at::kLong);
    std::jthread sender([&] {
        stages.of(0).send(1, 2, std::vector<c10::IValue>{wants, plain, int64_t{7}, wants, "text"},
                          kFirstValues);
    });
    const std::vector<c10::IValue> came = stages.of(1).receive(0, 2, kFirstValues);
    REQUIRE(came.size() == 5);
    CHECK(at::equal(came[0].toTensor(), wants));
    CHECK(came[0].toTensor().strides() == wants.strides());
    CHECK(came[0].toTensor().requires_grad());
    CHECK(at::equal(came[1].toTensor(), plain));
    CHECK(came[2].toInt() == 7);
    CHECK(came[3].toTensor().is_same(came[0].toTensor()));
    CHECK(came[4].toStringRef() == "text");
}

TEST_CASE("values of another part, sort or micro step than expected are refused by name") {
    struct Expected {
        StageMessage message;
        const char* says;
    };
    for (const Expected& expected :
         {Expected{{2, false, 3},
                   "the values after part 0 of micro step 3, but the values "
                   "after part 2 of micro step 3 were expected"},
          Expected{{0, true, 3}, "but the gradients after part 0 of micro step 3 were expected"},
          Expected{{0, false, 4}, "but the values after part 0 of micro step 4 were expected"}}) {
        const LinkedStages stages;
        std::jthread sender([&] {
            // The tensor is never received: the receiver's end releases the sender.
            CHECK_THROWS_AS(
                stages.of(0).send(1, 0, std::vector<c10::IValue>{at::ones({9})}, kFirstValues),
                Error);
        });
        std::string why;
        try {
            static_cast<void>(stages.of(1).receive(0, 0, expected.message));
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kDiverged);
            why = error.what();
        }
        CHECK(why.find(expected.says) != std::string::npos);
        stages.of(1).abort(why);
    }
}

}  // namespace dslaunch
