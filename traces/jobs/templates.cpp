// Code that is heavy on templates, for cc1plus to compile: <regex>, nested maps, variants.
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

template <int N> using Number = std::integral_constant<int, N>;

template <int N> struct Layer {
    std::map<std::tuple<Number<N>, std::string>, std::unique_ptr<Layer<N - 1>>> below;
    std::variant<Number<N>, std::vector<std::string>, Layer<N - 1> *> held;

    template <typename Visit> int walk(Visit visit) {
        int sum = std::visit(visit, held);
        for (auto &[key, layer] : below) sum += std::get<1>(key).size() + layer->walk(visit);
        return sum;
    }
};

template <> struct Layer<0> {
    template <typename Visit> int walk(Visit) { return 1; }
};

int main(int argc, char **argv) {
    std::cmatch found;
    Layer<4> top;
    int sum = top.walk([](auto &held) { return static_cast<int>(sizeof held); });
    for (int i = 1; i < argc; i++) sum += found.position(i) + found.str(i).size() + *argv[i];
    return sum & 1;
}
