// Times of segments: they are the times of the right passes, and the timing changes nothing.
#include "graph/measure/segment_times.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>

#include "support/catch.h"
#include "support/fixtures.h"
#include "support/script_module.h"

namespace dslaunch {

using namespace graph;
using namespace plan;

TEST_CASE("a segment is timed forward, for its inputs and for its weights") {
    at::set_num_threads(1);
    // Two products of 256 x 512 by 512 x 512. The first one's input is data, so all of its backward
    // is for weights. The second one has no weights.
    Model model = test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    y = torch.tanh(torch.mm(x, self.w))\n    return torch.mm(y, y.t()).sum()\n",
        {{"w", at::rand({512, 512})}});
    const SegmentedModel segmented = SegmentedModel::make(model, {}, 2);
    REQUIRE(segmented.segments().size() == 2);
    const std::vector<SegmentTimes> times = measure_times(segmented, {at::rand({256, 512})}, {});
    REQUIRE(times.size() == 2);
    CHECK(times[0].forward_s > 0);
    CHECK(times[0].backward_input_s == 0);
    CHECK(times[0].backward_weight_s > 0);
    CHECK(times[1].forward_s > 0);
    CHECK(times[1].backward_input_s > 0);
    CHECK(times[1].backward_weight_s == 0);
    CHECK_FALSE(model.parameters()[0].tensor.grad().defined());
}

TEST_CASE("equal layers get equal times, and every fixture can be timed") {
    at::set_num_threads(1);
    for (const std::string& name : test::fixture_names()) {
        INFO(name);
        test::Fixture fixture = test::Fixture::load(name);
        const SegmentedModel segmented = fixture.cut(4);
        // For half of the fixtures, all segments are timed at once, for the others one after the
        // other.
        const std::vector<Bytes> kept(name.size() % 2 == 0 ? segmented.segments().size() : 0,
                                      kTimedBytesMax);
        std::vector<at::Tensor> before;
        for (const ModelBuffer& buffer : segmented.model().buffers())
            before.push_back(buffer.tensor.clone());
        const std::vector<SegmentTimes> times =
            measure_times(segmented, fixture.batch(segmented), {1, kept});
        REQUIRE(times.size() == segmented.segments().size());
        for (size_t s = 0; s < times.size(); ++s) {
            CHECK(times[s].forward_s > 0);
            for (size_t other = 1; other < s; ++other)
                if (segmented.segments()[s].code == segmented.segments()[other].code)
                    CHECK(times[s].forward_s == times[other].forward_s);
        }
        for (size_t b = 0; b < before.size(); ++b)
            CHECK(at::equal(segmented.model().buffers()[b].tensor, before[b]));
        for (const ModelParameter& parameter : segmented.model().parameters())
            CHECK_FALSE(parameter.tensor.grad().defined());
    }
}

}  // namespace dslaunch
