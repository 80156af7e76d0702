(define (rows n) (if (= n 0) '() (cons (list n (number->string n)) (rows (- n 1)))))
(define all (rows 300000))
(display (length (sort all (lambda (a b) (string<? (cadr a) (cadr b))))))
(newline)
