#include "base/text/option_name.h"

#include "support/catch.h"

namespace dslaunch {

TEST_CASE("only the name of an option has its underscores read as dashes") {
    CHECK(with_dashes("--top_k=a_b") == "--top-k=a_b");
    CHECK(with_dashes("--eval_data") == "--eval-data");
    CHECK(with_dashes("my_file.pt") == "my_file.pt");
    CHECK(with_dashes("-o_x") == "-o_x");
}

}  // namespace dslaunch
