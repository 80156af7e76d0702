#include <map>
#include <regex>
#include <string>
#include <variant>
#include <vector>
int main(int n, char **v) {
    std::map<std::string, std::vector<std::variant<int, std::string>>> m;
    m[v[0]].push_back(n);
    return std::regex_match(v[0], std::regex("a(b|c)*d"));
}
