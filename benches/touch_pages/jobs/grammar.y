%token NUM NAME IF ELSE WHILE LE GE EQ NE AND OR
%left OR
%left AND
%left EQ NE
%left '<' '>' LE GE
%left '+' '-'
%left '*' '/'
%right '!'
%glr-parser
%%
program: %empty | program statement;
statement: ';' | expr ';' | NAME '=' expr ';' | '{' program '}' | IF '(' expr ')' statement %prec OR
    | IF '(' expr ')' statement ELSE statement | WHILE '(' expr ')' statement;
expr: NUM | NAME | NAME '(' list ')' | '(' expr ')' | '!' expr | '-' expr %prec '!'
    | expr '+' expr | expr '-' expr | expr '*' expr | expr '/' expr | expr '<' expr | expr '>' expr
    | expr LE expr | expr GE expr | expr EQ expr | expr NE expr | expr AND expr | expr OR expr;
list: %empty | some;
some: expr | some ',' expr;
%%
