import java.util.*;

public class Job {
    public static void main(String[] words) {
        Map<Integer, List<String>> groups = new HashMap<>();
        for (int round = 0; round < 6; round++) {
            for (int n = 0; n < 300000; n++) groups.computeIfAbsent(n % 5000, k -> new ArrayList<>()).add("row " + n);
            if (round % 2 == 1) groups.clear();
        }
        System.out.println(groups.size());
    }
}
